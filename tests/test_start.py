"""How models start: trained weights kept, masks taken along, and nothing destroyed without a word."""

import copy
import functools
import math
import warnings

import pytest
import torch
from torch import nn

import regrow
from regrow.errors import ConfigurationError, StartWarning, StateError
from regrow.methods import METHODS
from tests.support.training import assert_sparse, batches, bits, loss_of, sgd, small_net, sparse_run, train

ARGUMENTS = {"density": 0.25, "steps": 40, "update_every": 4}


def trained(steps=60):
    """A dense network that has learned, and a fresh optimizer for it."""
    torch.manual_seed(0)
    centres = torch.randn(10, 64)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = sgd(model, lr=0.1)
    for _ in range(steps):
        targets = torch.randint(10, (64,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(centres[targets] + torch.randn(64, 64)), targets).backward()
        optimizer.step()
    return model, sgd(model)


RANKED = [
    "sparse-momentum",
    "rigl",
    "set",
    "static",
    "dsr",
    "granet",
    "mest",
    "itop",
    "snfs-erk",
    "deep-r",
    "soft-deep-r",
]


@pytest.mark.parametrize("method", RANKED)
def test_magnitude_keeps_the_largest_weights_of_each_layer(method):
    model, optimizer = trained()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    handle = regrow.sparsify(model, optimizer, method, **ARGUMENTS, start="magnitude")
    assert_sparse(handle)
    for name, mask in handle.masks.items():
        weight = before[f"{name}.weight"]
        assert mask.all() or weight[mask].abs().min() >= weight[~mask].abs().max()
        assert torch.equal(model.get_parameter(f"{name}.weight"), weight * mask)


def test_magnitude_with_constant_fan_in():
    model, optimizer = trained()
    before = model[2].weight.detach().clone()
    handle = regrow.sparsify(model, optimizer, "srigl", **ARGUMENTS, start="magnitude")
    fan_in = handle.masks["2"].sum(1)
    assert fan_in.unique().numel() == 1
    assert torch.equal(handle.masks["2"], before.abs() >= before.abs().topk(int(fan_in[0]), 1).values[:, -1:])


@pytest.mark.parametrize(
    "method", ["sparse-momentum", "rigl", "set", "static", "top-kast", "granet", "gradual-pruning"]
)
def test_zeros_take_the_masks_along_to_another_optimizer(method):
    model, optimizer, handle = sparse_run(density=0.25, method="static")
    train(model, optimizer, batches(5))
    masks, weights = bits(handle).clone(), [p.detach().clone() for p in model.parameters()]
    handle.detach()
    schedule = {"density": 0.1} if method in ("granet", "gradual-pruning") else {}
    new = torch.optim.AdamW(model.parameters(), 1e-3)
    again = regrow.sparsify(model, new, method, steps=40, update_every=4, start="zeros", **schedule)
    assert torch.equal(bits(again), masks)
    assert all(torch.equal(p, w) for p, w in zip(model.parameters(), weights, strict=True))
    assert again.budget == again.nonzeros == int(masks.sum())
    train(model, new, batches(9))
    assert (again.updates > 0) == (method != "static")
    assert again.nonzeros <= int(masks.sum())


def test_a_density_beside_zeros_is_filled_up_exactly_and_keeps_all_that_is_there():
    model, optimizer, handle = sparse_run(density=0.25)
    train(model, optimizer, batches(4))  # an update: grown weights are zero by chance
    present = bits(handle).clone()
    kept = [p.detach() != 0 for p in model.parameters() if p.ndim > 1]
    handle.detach()
    assert sum(int(k.sum()) for k in kept) < int(present.sum())
    again = regrow.sparsify(model, sgd(model), **ARGUMENTS, start="zeros")
    assert again.nonzeros == again.budget == int(present.sum())
    assert all(bool(mask[k].all()) for mask, k in zip(again.masks.values(), kept, strict=True))
    again.detach()
    more = regrow.sparsify(model, sgd(model), density=0.5, steps=40, update_every=4, start="zeros")
    assert more.nonzeros == more.budget == math.floor(0.5 * more.numel + 0.5)
    assert all(bool(mask[k].all()) for mask, k in zip(more.masks.values(), kept, strict=True))


def test_a_lower_density_is_reached_by_magnitude():
    model, _, handle = sparse_run(density=0.5, method="static")
    handle.detach()
    with pytest.raises(
        ConfigurationError, match=r"start='zeros' finds \d+ weights where density 0\.25 allows \d+.*'magnitude'"
    ):
        regrow.sparsify(model, sgd(model), **ARGUMENTS, start="zeros")
    again = regrow.sparsify(model, sgd(model), **ARGUMENTS, start="magnitude")
    assert again.density == pytest.approx(0.25, abs=0.01)


def test_zeros_need_zeros_a_weight_in_every_layer_and_enough_for_a_schedule():
    model = small_net()
    with pytest.raises(StateError, match="finds no zeros: load the sparse weights into the model before sparsify"):
        regrow.sparsify(model, sgd(model), steps=40, start="zeros")
    model[2].weight.data.zero_()
    with pytest.raises(StateError, match="layer 2 has no non-zero weight"):
        regrow.sparsify(model, sgd(model), steps=40, start="zeros")
    sparse, _, handle = sparse_run(density=0.1, method="static")
    handle.detach()
    with pytest.raises(ConfigurationError, match=r"fewer than the \d+ with which method 'granet' ends"):
        regrow.sparsify(sparse, sgd(sparse), "granet", **ARGUMENTS, start="zeros")


OWN = {
    "snip": ("random", "magnitude", "zeros"),
    "grasp": ("random", "magnitude", "zeros"),
    "synflow": ("random", "magnitude", "zeros"),
    "lottery-ticket": ("random", "magnitude", "zeros"),
    "han": ("random", "magnitude", "zeros"),
    "dense": ("random", "magnitude", "zeros"),
    "sr-ste": ("random", "magnitude", "zeros"),
    **dict.fromkeys(
        [
            "l-obs",
            "l0",
            "variational-dropout",
            "lc",
            "obd",
            "targeted-dropout",
            "soft-weight-sharing",
            "bayesian-compression",
        ],
        ("random", "magnitude", "zeros"),
    ),
    "movement": ("random", "magnitude", "zeros"),
    "str": ("random", "magnitude", "zeros"),
    "dns": ("random", "magnitude", "zeros"),
    "gradual-pruning": ("random", "magnitude"),
    "top-kast": ("random",),
}


@pytest.mark.parametrize(("method", "start"), [(method, start) for method, starts in OWN.items() for start in starts])
def test_a_start_that_contradicts_the_method_is_refused_before_anything_changes(method, start):
    model = small_net()
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(ConfigurationError, match=rf"start='{start}' contradicts method '{method}'.*leave start out"):
        regrow.sparsify(model, sgd(model), method, density=0.25, steps=40, update_every=4, start=start)
    assert all(torch.equal(p, w) for p, w in zip(model.parameters(), before, strict=True))


def test_a_wrong_word_is_named():
    model = small_net()
    with pytest.raises(ConfigurationError, match=r"unknown start 'magnitud': did you mean 'magnitude'"):
        regrow.sparsify(model, sgd(model), **ARGUMENTS, start="magnitud")


def test_every_method_has_a_rule_for_starts():
    free = {name for name in METHODS if name not in OWN}
    assert set(RANKED) | {"srigl", "nest"} == free, "a new method: does it follow a start, or have a rule of its own?"


def test_trained_weights_are_not_destroyed_in_silence():
    model, optimizer = trained()
    with pytest.warns(StartWarning, match=r"look trained .*sets 75% of them to zero at random: say start='magnitude'"):
        regrow.sparsify(model, optimizer, **ARGUMENTS)


@pytest.mark.parametrize("start", ["random", "magnitude"])
def test_a_start_that_was_asked_for_is_not_warned_of(start):
    model, optimizer = trained()
    regrow.sparsify(model, optimizer, **ARGUMENTS, start=start)


@pytest.mark.parametrize("method", ["top-kast", "gradual-pruning", "dense"])
def test_methods_that_keep_the_largest_or_all_do_not_warn(method):
    model, optimizer = trained()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        regrow.sparsify(model, optimizer, method, steps=40, update_every=4, density=None if method == "dense" else 0.25)


def test_weights_loaded_before_sparsify_are_refused_with_the_state_loaded_after():
    model, optimizer, handle = sparse_run()
    train(model, optimizer, batches(6))
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict(), handle.state_dict()))
    fresh = small_net()
    fresh.load_state_dict(saved[0])
    again = sgd(fresh)
    sparse = regrow.sparsify(fresh, again, density=0.3, steps=40, update_every=4, start="random")
    again.load_state_dict(saved[1])
    sparse.load_state_dict(saved[2])
    with pytest.raises(
        StateError, match=r"are zero that were not when this state was saved.*Load after it: regrow\.sparsify"
    ):
        train(fresh, again, batches(1))
    fresh.load_state_dict(saved[0])
    train(fresh, again, batches(1))
    train(model, optimizer, batches(1))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), fresh.parameters(), strict=True))


@pytest.mark.parametrize("execution", ["masked", "sparse"])
def test_weights_loaded_before_sparsify_are_not_evaluated_with_the_state_loaded_after(execution):
    model, optimizer, handle = sparse_run()
    train(model, optimizer, batches(6))
    saved, (x, _) = copy.deepcopy((model.state_dict(), handle.state_dict())), batches(1)[0]
    fresh = small_net()
    fresh.load_state_dict(saved[0])
    arguments = {"density": 0.3, "steps": 40, "update_every": 4, "start": "random", "execution": execution}
    optimizer = sgd(fresh)  # a handle does not keep its own
    sparse = regrow.sparsify(fresh, optimizer, **arguments)
    sparse.load_state_dict(saved[1])
    for _ in range(2):
        with pytest.raises(StateError, match="are zero that were not when this state was saved"):
            fresh.eval()(x)
    copied = copy.deepcopy(fresh)
    copied(x)  # a copy without handle belongs to nobody
    fresh.load_state_dict(saved[0])
    torch.testing.assert_close(fresh(x), model.eval()(x))
    assert not fresh._forward_pre_hooks


def test_a_detached_model_computes_whatever_it_holds():
    model, _optimizer, handle = sparse_run()
    state = handle.state_dict()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    handle.load_state_dict(state)
    handle.detach()
    assert model(batches(1)[0][0]).count_nonzero() == 0


def test_states_of_other_criteria_costs_and_distributions_are_refused():
    from regrow.topology import score

    optimizers = []  # a handle does not keep its own

    def run(**arguments):
        model = small_net()
        optimizers.append(sgd(model))
        return regrow.sparsify(model, optimizers[-1], density=0.3, steps=40, update_every=4, **arguments)

    plain = run().state_dict()
    with pytest.raises(StateError, match="the saved run has prune = "):
        run(prune=lambda layer: -layer.weight.abs()).load_state_dict(plain)
    with pytest.raises(StateError, match="the saved run has grow = "):
        run(grow=score.random).load_state_dict(plain)
    with pytest.raises(StateError, match="the saved run has redistribute = "):
        run(redistribute=lambda layer: 1.0).load_state_dict(plain)
    with pytest.raises(StateError, match=r"the saved run has distribution = \{'0': 0.2\}, this one \{'0': 0.35\}"):
        run(distribution={"0": 0.35}).load_state_dict(run(distribution={"0": 0.2}).state_dict())
    dear = run(cost_power=1.0, costs={"0": 1.0, "2": 2.0, "4": 3.0}).state_dict()
    with pytest.raises(StateError, match="the saved run has costs = "):
        run(cost_power=1.0, costs={"0": 1.0, "2": 2.0, "4": 4.0}).load_state_dict(dear)
    with pytest.raises(StateError, match="the saved run has costs = None"):
        run(costs={"0": 1.0, "2": 2.0, "4": 3.0}).load_state_dict(plain)
    run(cost_power=1.0, costs={"0": 1.0, "2": 2.0, "4": 3.0}).load_state_dict(dear)


def _power(layer, exponent=1.0):
    return layer.weight.abs() ** exponent


def _default(number):
    return lambda layer, exponent=number: layer.weight.abs() ** exponent


@pytest.mark.parametrize(
    "criterion",
    [
        lambda number: functools.partial(_power, exponent=number),
        lambda number: lambda layer: _power(layer, number),
        _default,
    ],
    ids=["partial", "closure", "default"],
)
def test_states_of_criteria_with_other_numbers_are_refused(criterion):
    kept = []

    def run(number):
        model = small_net()
        kept.append(sgd(model))
        return regrow.sparsify(model, kept[-1], density=0.3, steps=40, update_every=4, prune=criterion(number))

    run(1.0).load_state_dict(run(1.0).state_dict())
    with pytest.raises(StateError, match="the saved run has prune = "):
        run(2.0).load_state_dict(run(1.0).state_dict())


def test_the_error_of_another_optimizer_says_what_keeps_the_masks():
    model, _, _ = sparse_run()
    stranger = torch.optim.AdamW(model.parameters())
    loss_of(model, batches(1)[0]).backward()
    with pytest.raises(StateError, match=r"sparsify again with the new optimizer and start='zeros'"):
        stranger.step()
