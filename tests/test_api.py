"""The one line: defaults, calibration, costs, public names, and what importing costs."""

import doctest
import importlib
import inspect
import pkgutil
import subprocess
import sys

import pytest
import torch
from torch import nn

import regrow
from regrow.api import DEFAULT_INTERVAL
from regrow.errors import ConfigurationError
from tests.support.training import assert_sparse, batches, bits, loss_of, sgd, small_net, sparse_run, train

PUBLIC = [
    "Grow", "Handle", "LayerView", "Method", "Prune", "Redistribute", "Scope", "When", "compact_form", "freeze", "handle_of",
    "list_methods", "load", "needs", "per_weight", "register", "save", "sparsify",
]  # fmt: skip
NAMES = [
    "sparse-momentum", "set", "dsr", "deep-r", "soft-deep-r", "snip", "static", "dense", "rigl", "snfs-erk", "itop", "granet",
    "mest", "top-kast", "srigl", "grasp", "synflow", "gradual-pruning", "han", "lottery-ticket", "sr-ste",
    "movement", "str", "l-obs", "dns", "l0", "variational-dropout", "lc", "obd", "targeted-dropout", "soft-weight-sharing",
    "bayesian-compression", "nest",
]  # fmt: skip


def test_public_names():
    assert sorted(regrow.__all__) == PUBLIC
    assert dir(regrow) == PUBLIC
    assert all(getattr(regrow, name) is not None for name in PUBLIC)
    with pytest.raises(AttributeError, match="no attribute 'sparsifi'"):
        _ = regrow.sparsifi


def test_everything_public_is_documented():
    for name in PUBLIC:
        thing = getattr(regrow, name)
        assert inspect.getdoc(thing), name
        for attribute, member in vars(thing).items() if inspect.isclass(thing) else ():
            field = attribute in vars(thing).get("__annotations__", {})
            if (
                not attribute.startswith("_")
                and not field
                and (inspect.isfunction(member) or isinstance(member, property))
            ):
                assert inspect.getdoc(member), f"{name}.{attribute}"


def test_importing_regrow_does_not_import_torch():
    code = "import sys, regrow; assert regrow.__version__; sys.exit(sorted(m for m in ('torch', 'numpy') if m in sys.modules) != [])"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_sparsify_is_lazy_about_optional_packages():
    code = "import sys, regrow; regrow.sparsify; sys.exit(any(m in sys.modules for m in ('rich', 'lightning', 'transformers')))"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


@pytest.mark.parametrize(
    "name", ["regrow", *(m.name for m in pkgutil.walk_packages(regrow.__path__, "regrow.") if "._" not in m.name)]
)
def test_examples_in_docstrings(name):
    torch.manual_seed(0)
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


def test_list_methods(capsys):
    methods = regrow.list_methods()
    printed = capsys.readouterr().out
    assert [m.name for m in methods] == NAMES
    assert "Dettmers" in printed
    assert all(m.summary and m.paper and m.year and m.budget and m.extra_memory for m in methods)
    regrow.list_methods(show=False)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("arguments", "every"),
    [
        ({}, DEFAULT_INTERVAL),
        ({"steps_per_epoch": 7}, 7),
        ({"steps_per_epoch": 7, "update_every": 3}, 3),
        ({"method": "rigl"}, 100),
        ({"method": "rigl", "update_every": 9}, 9),
    ],
)
def test_how_often_the_topology_is_updated(arguments, every):
    model = small_net()
    handle = regrow.sparsify(model, sgd(model), density=0.3, steps=1000, **arguments)
    assert handle.settings.clock.every == every


def test_a_ready_method_and_its_registry():
    recipe = regrow.Method(
        name="rewire-at-random", paper="nobody", year=2024, summary="for this test", prune=regrow.Prune(), grow=regrow.Grow(),
        when=regrow.When(2), rate=lambda progress: 0.3, rate_needs_steps=False,
    )  # fmt: skip
    model = small_net()
    optimizer = sgd(model)
    handle = regrow.sparsify(model, optimizer, recipe, density=0.3)
    train(model, optimizer, batches(7), lambda: assert_sparse(handle))
    assert handle.updates == 3
    with pytest.raises(ValueError, match="ready Method takes no options"):
        regrow.sparsify(small_net(), sgd(small_net()), recipe, density=0.3, prune_rate=0.1)
    with pytest.raises(ValueError, match="'set' is registered already"):
        regrow.register(lambda: regrow.Method(name="set", paper="", year=0, summary=""))


@pytest.mark.parametrize("method", ["snip", "grasp"])
def test_calibration_by_loss(method):
    model = small_net()
    before = [p.detach().clone() for p in model.parameters()]
    optimizer, batch = sgd(model), batches(1)[0]
    handle = regrow.sparsify(model, optimizer, method, density=0.3, calibration=lambda: loss_of(model, batch))
    assert_sparse(handle)
    assert all(p.grad is None for p in model.parameters())
    for mask, weight, old in zip(handle.masks.values(), model[::2], before[::2], strict=True):
        assert torch.equal(weight.weight, old * mask)


def test_calibration_by_input():
    model = small_net()
    before = [p.detach().clone() for p in model.parameters()]
    handle = regrow.sparsify(model, sgd(model), "synflow", density=0.3, calibration=torch.randn(4, 12))
    assert_sparse(handle)
    assert torch.equal(model[0].weight, before[0] * handle.masks["0"])


def test_costs_by_name_or_counted():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4))
    example = torch.randn(1, 3, 8, 8)
    handle = regrow.sparsify(model, sgd(model), density=0.2, steps=40, update_every=10, cost_power=1.0, costs=example)
    assert handle.network.costs == [36.0, 1.0]
    handle.detach()
    handle = regrow.sparsify(
        model,
        sgd(model),
        density=0.2,
        steps=40,
        update_every=10,
        cost_power=1.0,
        costs={"0": 2.0, "3": 5.0},
        start="zeros",
    )
    assert handle.network.costs == [2.0, 5.0]


@pytest.mark.parametrize("method", ["gradual-pruning", "granet", "mest", "static"])
def test_explicit_densities_of_all_layers_hold_at_the_end_of_moving_densities(method):
    model = small_net()
    optimizer = sgd(model)
    densities = {"0": 0.25, "2": 0.375, "4": 0.375}
    handle = regrow.sparsify(model, optimizer, method, density=0.3, steps=20, update_every=2, distribution=densities)
    train(model, optimizer, batches(20))
    assert handle.density == pytest.approx(0.3, abs=0.01)


def test_explicit_densities_that_contradict_the_density_are_refused():
    model = small_net()
    with pytest.raises(ConfigurationError, match=r"make 0\.5 of all weights, not the density 0\.1"):
        regrow.sparsify(model, sgd(model), "static", density=0.1, distribution={"*": 0.5})


@pytest.mark.parametrize("price", [0.0, -1.0, float("nan"), float("inf")])
def test_prices_are_positive_numbers(price):
    model = small_net()
    names = dict.fromkeys(("0", "2", "4"), 1.0)
    with pytest.raises(ConfigurationError, match="price of a weight of layer '2' must be positive"):
        regrow.sparsify(model, sgd(model), density=0.2, steps=40, update_every=9, costs={**names, "2": price})


@pytest.mark.parametrize(
    "distribution", ["uniform", "er", "erk", {"0": 0.2, "2": 0.5}, lambda shapes, d: [0.1, 0.4, 1.0]]
)
def test_distributions_keep_the_budget(distribution):
    _, _, handle = sparse_run(distribution=distribution)
    assert handle.nonzeros == round(0.3 * handle.numel)
    if distribution == "uniform":
        assert [int(m.count_nonzero()) for m in handle.masks.values()] == [58, 38, 7]
    if isinstance(distribution, dict):
        assert int(handle.masks["2"].count_nonzero()) == 64


def test_density_one_is_a_dense_network():
    model, optimizer, handle = sparse_run(density=1)
    train(model, optimizer, batches(9))
    assert handle.nonzeros == handle.numel
    plain = small_net()
    train(plain, sgd(plain), batches(9))
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), plain.parameters(), strict=True))


def test_the_same_arguments_give_the_same_run():
    runs = [sparse_run() for _ in range(2)]
    for model, optimizer, _ in runs:
        train(model, optimizer, batches(9))
    assert torch.equal(bits(runs[0][2]), bits(runs[1][2]))


def test_a_model_on_the_meta_device_is_refused_by_name():
    model = nn.Linear(4, 3, device="meta")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with pytest.raises(
        ConfigurationError, match=r"weight is on the meta device and holds no numbers.*regrow\.nn\.materialise"
    ):
        regrow.sparsify(model, optimizer, density=0.5, steps=4, update_every=2)
