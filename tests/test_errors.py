"""Bad input: named, with the remedy, before anything changes."""

import ast
import copy
from pathlib import Path

import numpy as np
import pytest
import torch

import regrow
from regrow import errors
from regrow.errors import (
    ConfigurationError,
    NonFiniteError,
    RegrowError,
    ScheduleWarning,
    StateError,
    UnsupportedError,
    unknown,
)
from tests.support.training import bits, same_weights, sgd, small_net, sparse_run

GOOD = {"density": 0.3, "steps": 40, "update_every": 4}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"density": 0}, r"density must lie in \(0, 1\], got 0: 0.05 keeps 5% of the weights"),
        ({"density": 1.5}, "got 1.5"),
        ({"density": -0.1}, "got -0.1"),
        ({"density": float("nan")}, "got nan"),
        ({"density": True}, "got True"),
        ({"density": "0.1"}, "got '0.1'"),
        ({"density": {"0": 0.1}}, r"density is one number.*distribution=\{'0': 0\.1\}"),
        ({"density": None}, "density is missing.*density=0.05"),
        ({"density": 0.001}, "budget of 0 weights does not fit 3 layers.*raise the density"),
        ({"method": "rigel"}, "unknown method 'rigel': did you mean 'rigl'"),
        ({"method": "sparse_momentum"}, "did you mean 'sparse-momentum'"),
        ({"method": "RigL"}, "did you mean 'rigl'"),
        ({"method": None}, "method must be a name or a regrow.Method, got None"),
        ({"prune_ratee": 0.3}, "unknown option 'prune_ratee' of method 'sparse-momentum': did you mean 'prune_rate'"),
        ({"sparsity": 0.9}, "give density = 1 - sparsity"),
        ({"redistribution": "momentun"}, "unknown redistribution 'momentun': did you mean 'momentum'"),
        ({"growth": "randm"}, "unknown growth 'randm': did you mean 'random'"),
        ({"pruning": "magnitud"}, "unknown pruning 'magnitud': did you mean 'magnitude'"),
        ({"decay": "cosin"}, "unknown decay 'cosin': did you mean 'cosine'"),
        ({"scope": "fully-spars"}, "unknown scope 'fully-spars': did you mean 'fully-sparse'"),
        ({"scope": ["last"]}, "unknown layer pattern 'last': did you mean '@last'"),
        ({"scope": ["3.weigth"]}, r"unknown layer pattern '3.weigth'\. Valid: 0, 0.bias"),
        ({"distribution": "unifrom"}, "unknown distribution 'unifrom': did you mean 'uniform'"),
        ({"distribution": {"9": 0.5}}, "unknown layer pattern in distribution '9'"),
        ({"distribution": {"0": 1.5}}, r"density of '0' must lie in \(0, 1\], got 1.5"),
        ({"distribution": {"0": 1.0}}, "explicit densities leave density"),
        ({"momentum": "optimiser"}, "unknown momentum source 'optimiser': did you mean 'optimizer'"),
        ({"steps": None}, r"schedule over the whole run: pass steps=.*epochs \* len\(loader\)"),
        ({"steps": 0}, "steps must be a positive whole number of optimizer steps, got 0"),
        ({"steps": 2.5}, "steps must be a positive whole number"),
        ({"steps": True}, "steps must be a positive whole number"),
        ({"update_every": -1}, "update_every must be a positive"),
        ({"steps_per_epoch": "7"}, "steps_per_epoch must be a positive"),
        ({"window_tolerance": 1}, r"window_tolerance must lie in \[0, 1\), got 1"),
        ({"window_tolerance": "0"}, "window_tolerance must lie in"),
        ({"method": "snip"}, r"'snip' scores weights on data: pass calibration=lambda: loss_function"),
        ({"method": "grasp", "calibration": torch.zeros(2)}, "'grasp' scores weights on data"),
        ({"method": "synflow"}, "'synflow' needs the shape of an input: pass calibration=<one example batch>"),
        ({"cost_power": 0.5}, "cost_power needs costs"),
        ({"cost_power": 0.5, "redistribution": "none"}, "cost_power weighs the shares of a redistribution"),
        ({"cost_power": 1.0, "redistribution": "none", "reference": True}, "cost_power weighs the shares"),
        ({"cost_power": 0.5, "costs": {"0": 1.0}}, "costs lack layer '2'"),
        ({"method": "sr-ste", "density": 0.1}, "'sr-ste' has density 0.5 by construction: leave density out"),
        ({"method": "top-kast", "grow": lambda layer: layer.weight}, "'top-kast' chooses its masks in one piece"),
    ],
)
def test_bad_arguments_change_nothing(change, message):
    model = small_net()
    optimizer, before = sgd(model), copy.deepcopy(model)
    with pytest.raises(ConfigurationError, match=message):
        regrow.sparsify(model, optimizer, **{**GOOD, **change})
    assert same_weights(model, before)
    assert regrow.handle_of(optimizer) is None
    handle = regrow.sparsify(model, optimizer, **GOOD)
    assert handle.nonzeros == 103


def test_a_failing_calibration_leaves_the_model_alone():
    model = small_net()
    optimizer, before = sgd(model), copy.deepcopy(model)

    def broken():
        raise KeyError("no data")

    with pytest.raises(KeyError, match="no data"):
        regrow.sparsify(model, optimizer, "snip", density=0.3, calibration=broken)
    with pytest.raises(NonFiniteError, match="non-finite score in layer 0: check inputs and loss"):
        regrow.sparsify(
            model, optimizer, "snip", density=0.3, calibration=lambda: model(torch.full((1, 12), torch.inf)).sum()
        )
    assert same_weights(model, before)
    assert regrow.handle_of(optimizer) is None


def test_numbers_of_numpy_are_numbers():
    model = small_net()
    handle = regrow.sparsify(
        model, sgd(model), density=np.float32(0.25), steps=np.int64(40), update_every=np.int32(4), seed=np.int64(0)
    )
    plain = sparse_run(density=0.25)[2]
    assert torch.equal(bits(handle), bits(plain))
    assert type(handle.state_dict()["identity"]["steps"]) is int


@pytest.mark.parametrize(("steps", "every", "method"), [(4, 5, "set"), (5, 5, "sparse-momentum"), (4, 5, "dsr")])
def test_masks_that_can_never_change_are_warned_of_once(steps, every, method):
    model = small_net()
    with pytest.warns(
        ScheduleWarning, match=f"masks will never change.*every {every} steps.*after {steps}\\b"
    ) as found:
        handle = regrow.sparsify(model, sgd(model), method, density=0.3, steps=steps, update_every=every)
    assert len(found) == 1
    assert found[0].filename == __file__
    assert handle.settings.clock.next_due(1) is None


def test_error_kinds_are_builtin_kinds_too():
    for kind, builtin in (
        (ConfigurationError, ValueError),
        (UnsupportedError, TypeError),
        (StateError, RuntimeError),
        (NonFiniteError, FloatingPointError),
    ):
        assert issubclass(kind, builtin)
        assert issubclass(kind, RegrowError)


def _calls_of_warn():
    for path in sorted(Path(regrow.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "warnings.warn":
                yield f"{path.name}:{node.lineno}", node


def test_every_warning_is_of_a_kind_of_our_own():
    kinds = {}
    for place, call in _calls_of_warn():
        category = call.args[1] if len(call.args) > 1 else None
        kinds[place] = getattr(errors, ast.unparse(category)) if category is not None else UserWarning
    assert len(kinds) >= 7
    assert [place for place, kind in kinds.items() if not issubclass(kind, errors.RegrowWarning)] == []


def test_unknown_without_any_valid_name():
    assert str(unknown("layer", "x", [])) == "unknown layer 'x': there is none to choose from"


def test_only_near_names_are_suggested():
    names = [f"name{index:02d}" for index in range(40)]
    far = str(unknown("method", "adam", names))
    assert "did you mean" not in far
    assert all(name in far for name in names), "where nothing is near, all are listed"
    near = str(unknown("method", "nane07", names))
    assert "did you mean 'name07'?" in near
    assert near.endswith("did you mean 'name07'?")
