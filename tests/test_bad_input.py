"""Bad input around a sparse run: a clear error that names what and the remedy, before any state changes."""

import copy
import pickle
import re

import pytest
import torch
from torch import nn

import regrow
from regrow.attach import handle_of
from regrow.errors import ConfigurationError, NonFiniteError, StateError
from regrow.methods import build
from regrow.topology.score import magnitude
from tests.support.manual import Manual
from tests.support.training import batches, sgd, small_net, sparse_run, train


def net():
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))


def refused(error, match, model=None, optimizer=None, **arguments):
    """``sparsify`` must raise, and leave model and optimizer as they were."""
    model = net() if model is None else model
    before = copy.deepcopy(model.state_dict())
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with pytest.raises(error, match=match):
        regrow.sparsify(model, optimizer, **arguments)
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert handle_of(optimizer) is None
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert all(bool((before[k] != v).all()) for k, v in model.state_dict().items())


@pytest.mark.parametrize("density", [0, -0.1, 1.5, "half", float("nan")])
def test_density_outside_its_range(density):
    refused(ConfigurationError, r"density must lie in \(0, 1\]", density=density, steps=10)


def test_density_missing_or_too_low_for_the_layers():
    refused(ConfigurationError, "density is missing", steps=10)
    refused(ConfigurationError, "every layer needs at least one weight", density=0.01, steps=10)


@pytest.mark.parametrize("method", ["gradual-pruning", "lottery-ticket", "han", "mest", "granet"])
def test_a_final_density_that_does_not_fit_fails_at_once_and_not_at_a_later_update(method):
    refused(ConfigurationError, "does not fit 2 layers", method=method, density=0.01, steps=10, update_every=1)


@pytest.mark.parametrize("name", ["steps", "update_every", "steps_per_epoch"])
@pytest.mark.parametrize("value", [0, -3, 2.5])
def test_counts_of_steps(name, value):
    arguments = {"steps": 10, name: value}
    refused(ConfigurationError, f"{name} must be a positive whole number", density=0.5, **arguments)


@pytest.mark.parametrize("method", ["sparse-momentum", "rigl", "granet", "gradual-pruning", "dsr", "mest"])
def test_schedules_need_the_number_of_steps(method):
    refused(
        ConfigurationError, f"'{method}' has a schedule over the whole run: pass steps=", method=method, density=0.5
    )


def test_unknown_names():
    refused(ConfigurationError, "did you mean 'sparse-momentum'", method="sparse_momentum", density=0.5, steps=10)
    refused(ConfigurationError, "did you mean 'fully-sparse'", scope="fully sparse", density=0.5, steps=10)
    refused(ConfigurationError, "did you mean 'er'", distribution="erg", density=0.5, steps=10)
    refused(ConfigurationError, "unknown layer pattern", scope=regrow.Scope(dense=("fc*",)), density=0.5, steps=10)
    refused(ConfigurationError, "unknown momentum source", momentum="adam", density=0.5, steps=10)
    refused(ConfigurationError, "window_tolerance", window_tolerance=1.0, density=0.5, steps=10)


def test_an_optimizer_of_other_parameters():
    other = torch.optim.SGD(net().parameters(), lr=0.1)
    with pytest.raises(ConfigurationError, match=r"does not own 0\.weight"):
        regrow.sparsify(net(), other, density=0.5, steps=10)


def test_a_model_without_a_layer_to_make_sparse():
    refused(ConfigurationError, "no layer to make sparse", model=nn.LayerNorm(4), density=0.5, steps=10)


@pytest.mark.parametrize("method", ["sparse-momentum", "rigl", "granet", "srigl", "snfs-erk"])
def test_a_non_finite_gradient_at_an_update_leaves_the_masks(method):
    phase = build(method, {}).when.phase
    run = Manual(method, [torch.rand(4, 6)], density=0.5, steps=40, update_every=4)
    for _ in range(3 if phase == "after" else 4):
        run.step(torch.rand(4, 6))
    masks, updates, journal = run.masks, run.handle.updates, len(run.handle.journal)
    poisoned = torch.rand(4, 6)
    poisoned[run.masks[0]] = float("nan")
    with pytest.raises(NonFiniteError, match="masks were left as they are"):
        run.step(poisoned)
    assert torch.equal(run.masks[0], masks[0])
    assert (run.handle.updates, len(run.handle.journal)) == (updates, journal)


def test_state_of_another_run_is_refused_before_anything_changes():
    run = Manual("rigl", [torch.rand(4, 6)], density=0.5, steps=40, update_every=4)
    state = run.handle.state_dict()
    for other, message in (
        (Manual("set", [torch.rand(4, 6)], density=0.5, steps=40, update_every=4), "method = 'rigl'"),
        (Manual("rigl", [torch.rand(4, 6)], density=0.25, steps=40, update_every=4), "density = 0.5"),
        (Manual("rigl", [torch.rand(4, 6)], density=0.5, steps=40, update_every=4, seed=1), "seed = 0"),
        (Manual("rigl", [torch.rand(6, 6)], density=0.5, steps=40, update_every=4), "has shape"),
    ):
        before = other.handle.state_dict()
        with pytest.raises(StateError, match=message):
            other.handle.load_state_dict(state)
        after = other.handle.state_dict()
        assert all(torch.equal(before["masks"][k], v) for k, v in after["masks"].items())
        assert before["step"] == after["step"]
    with pytest.raises(StateError, match=r"handle\.state_dict"):
        run.handle.load_state_dict({"masks": {}})
    with pytest.raises(StateError, match="format 99"):
        run.handle.load_state_dict({**state, "version": 99})


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("sparse-momentum", {"prune_rate": 3}, "prune_rate must lie in"),
        ("sparse-momentum", {"just_pruned": "Zero"}, "did you mean 'zero'"),
        ("sparse-momentum", {"grown_momentum": "kept"}, "did you mean 'keep'"),
        ("sparse-momentum", {"global_prune": True, "pruning": "set"}, "rule of its own"),
        ("sparse-momentum", {"global_growth": True, "growth": "momentum-neuron"}, "take one"),
        ("set", {"prune_rate": -1}, "prune_rate must lie in"),
        ("soft-deep-r", {"noise": -1}, "noise must be at least 0"),
        ("soft-deep-r", {"l1": "x"}, "l1 must be larger than 0"),
        ("sr-ste", {"n": "x"}, "n:m needs whole numbers"),
        ("itop", {"growth": "randm"}, "did you mean 'random'"),
        ("rigl", {"stop": 0}, "stop must lie in"),
        ("gradual-pruning", {"begin": 0.5, "end": 0.5}, "begin must lie before end"),
        ("gradual-pruning", {"select": "globl"}, "did you mean 'global'"),
        ("lottery-ticket", {"keep": 1.0}, "keep must lie in"),
        ("mest", {"gap": 2}, "gap must lie in"),
        ("dsr", {"target": -3}, "target must lie in"),
        ("top-kast", {"exploration": -1}, "exploration must lie in"),
    ],
)
def test_options_out_of_range(method, options, message):
    refused(ConfigurationError, message, method=method, density=0.5, steps=40, update_every=4, **options)


def test_synflow_needs_a_round():
    refused(ConfigurationError, "rounds must be at least 1", method="synflow", density=0.5, rounds=0)


@pytest.mark.parametrize("method", ["gradual-pruning", "granet"])
def test_a_schedule_that_would_not_arrive_is_refused(method):
    refused(ConfigurationError, "would end at density", method=method, density=0.1, steps=1000, update_every=600)


def test_criteria_that_would_never_be_asked_are_refused():
    refused(ConfigurationError, "never changes its masks", method="static", density=0.5, prune=magnitude)
    refused(ConfigurationError, "rule of its own", method="dsr", density=0.5, steps=40, prune=magnitude)


@pytest.mark.parametrize(
    ("criteria", "error", "message"),
    [
        ({"prune": lambda layer: layer.weight.abs().t()}, ConfigurationError, "a score is a tensor of shape"),
        ({"grow": lambda layer: None}, ConfigurationError, "gave NoneType for layer"),
        ({"grow": lambda layer: layer.weight * float("nan")}, NonFiniteError, "not finite in layer"),
        ({"redistribute": lambda layer: -1.0}, NonFiniteError, "a share is a finite number"),
        ({"redistribute": lambda layer: float("nan")}, NonFiniteError, "a share is a finite number"),
    ],
)
def test_what_own_criteria_return_is_checked_before_masks_change(criteria, error, message):
    run = Manual(
        "sparse-momentum", [torch.rand(4, 6), torch.rand(6, 8)], density=0.5, steps=40, update_every=1, **criteria
    )
    before = {name: mask.clone() for name, mask in run.handle.masks.items()}
    with pytest.raises(error, match=message):
        run.step(torch.rand(4, 6), torch.rand(6, 8))
    assert all(torch.equal(mask, before[name]) for name, mask in run.handle.masks.items())


def sparse(method="sparse-momentum", **options):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return model, optimizer, regrow.sparsify(model, optimizer, method, density=0.5, steps=40, update_every=4, **options)


def test_state_of_other_options_is_refused():
    first, second = sparse(), sparse(prune_rate=0.5)
    with pytest.raises(StateError, match="the saved run has options"):
        second[2].load_state_dict(first[2].state_dict())


def test_rewinding_before_its_step_is_refused():
    _model, _optimizer, handle = sparse("lottery-ticket", rewind_step=100)
    with pytest.raises(StateError, match="nothing to rewind to yet"):
        handle.rewind()
    assert handle.round == 0


def test_an_unknown_execution_changes_nothing():
    refused(ConfigurationError, "unknown execution", density=0.5, steps=40, execution="dence")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sparsity": 0.9}, "give density = 1 - sparsity"),
        ({"exection": "sparse"}, "did you mean 'execution'"),
        ({"windowtolerance": 0.1}, "did you mean 'window_tolerance'"),
        ({"momentum": 0.9}, "unknown momentum source 0.9"),
        ({"grow": "random"}, "grow must be a function of a layer"),
        ({"seed": "a"}, "seed must be a whole number"),
        ({"seed": 1.5}, "seed must be a whole number"),
        ({"distribution": lambda shapes, density: [0.1]}, "gave 1 densities for 2 layers"),
        ({"method": "snip", "calibration": lambda: 1.0}, "calibration gave float"),
        ({"method": "snip", "calibration": lambda: torch.ones(())}, "the loss as a tensor with its graph"),
    ],
)
def test_plausible_mistakes_are_named_at_once(arguments, message):
    refused(ConfigurationError, re.escape(message), **{"density": 0.3, "steps": 40, "update_every": 10, **arguments})


def test_what_is_no_model_or_no_kind_of_gradient_is_refused():
    with pytest.raises(ConfigurationError, match=r"must be a torch\.nn\.Module, got NoneType"):
        regrow.sparsify(None, sgd(small_net()), density=0.1)
    with pytest.raises(ConfigurationError, match="did you mean 'gradient'"):
        regrow.needs("gradients")


def test_a_share_that_is_no_number_is_named_with_its_layer():
    model, optimizer, _ = sparse_run(redistribute=lambda layer: None, update_every=1)
    with pytest.raises(ConfigurationError, match="gave no number but NoneType for layer 0: a share is one number"):
        train(model, optimizer, batches(1))


def test_a_layer_replaced_after_sparsify_is_noticed_at_the_next_update():
    model, optimizer, _ = sparse_run(update_every=2)
    model[2] = nn.Linear(model[2].in_features, model[2].out_features)
    with pytest.raises(StateError, match=r"no longer the 2\.weight that was sparsified \(layer replaced"):
        train(model, optimizer, batches(2))


def test_a_layer_replaced_after_sparsify_is_noticed_at_the_end_of_a_round():
    model, _optimizer, handle = sparse_run(method="han", update_every=None)
    model[2] = nn.Linear(model[2].in_features, model[2].out_features)
    with pytest.raises(StateError, match=r"no longer the 2\.weight"):
        handle.rewind()


def test_a_handle_is_not_pickled():
    _, _, handle = sparse_run()
    with pytest.raises(StateError, match=r"save handle\.state_dict"):
        pickle.dumps(handle)
