"""Sparse momentum: the unit tests of its description, its variants, the reference switch, the growth window."""

import math

import pytest
import torch
from torch import nn

import regrow
from regrow.defaults import LETTER
from regrow.errors import ConfigurationError
from regrow.methods import build
from regrow.topology.redistribute import SHARES
from tests.support.manual import Manual
from tests.support.oracle import update as oracle_update
from tests.support.views import update, view


def layer_of(nnz, numel, q, weight=None):
    """A layer with ``nnz`` present weights of mean momentum q; missing ones have less."""
    mask = torch.arange(numel) < nnz
    values = torch.arange(1, numel + 1, dtype=torch.float32) if weight is None else weight
    return view(values * mask, mask, torch.where(mask, float(q), 0.25 * q))


def after(method, *layers, rate):
    return [int(mask.count_nonzero()) for mask in method.update(update(*layers, rate=rate)).masks]


VECTORS = [
    ((10, 100, 200), (6, 10, 20), 0.5, (8, 1, 1), (3, 5, 10), (7, 6, 5), (10, 11, 15)),
    ((10, 20, 100, 1000), (9, 15, 10, 50), 0.5, (10, 5, 1, 1), (1, 4, 5, 25), (2, 9, 12, 12), (10, 20, 17, 37)),
    ((10, 12, 1000), (9, 6, 100), 0.2, (98, 1, 1), (1, 2, 20), (2, 8, 13), (10, 12, 93)),
]


@pytest.mark.parametrize(("sizes", "nnz", "p", "q", "removed", "grown", "end"), VECTORS)
def test_published_vectors_of_over_full_and_nearly_dense_layers(sizes, nnz, p, q, removed, grown, end):
    layers = [layer_of(*numbers) for numbers in zip(nnz, sizes, q, strict=True)]
    change = build("sparse-momentum", {}).update(update(*layers, rate=p))
    assert tuple(int(m.count_nonzero()) for m in change.removed) == removed
    assert tuple(int(m.count_nonzero()) for m in change.grown) == grown
    assert tuple(int(m.count_nonzero()) for m in change.masks) == end


def test_a_dense_layer_with_the_largest_contribution_stays_dense():
    assert after(build("sparse-momentum", {}), layer_of(10, 10, 9), layer_of(20, 100, 1), rate=0.5)[0] == 10


def test_prune_rate_zero_leaves_the_masks():
    layers = [layer_of(5, 10, 3), layer_of(20, 100, 1)]
    change = build("sparse-momentum", {}).update(update(*layers, rate=0.0))
    assert all(torch.equal(mask, layer.mask) for mask, layer in zip(change.masks, layers, strict=True))
    assert not any(m.any() for m in (*change.removed, *change.grown))


def test_growth_is_uniform_for_equal_contributions_and_sizes():
    assert after(build("sparse-momentum", {}), *(layer_of(20, 100, 2) for _ in range(4)), rate=0.3) == [20] * 4


def test_every_layer_gets_back_its_own_where_no_momentum_exists():
    layers = [layer_of(10, 40, 0), layer_of(30, 90, 0), layer_of(3, 8, 0)]
    assert after(build("sparse-momentum", {}), *layers, rate=0.4) == [10, 30, 3]


def test_a_layer_of_one_weight_is_never_emptied():
    assert min(after(build("sparse-momentum", {}), layer_of(1, 10, 0), layer_of(20, 100, 5), rate=0.9)) >= 1


def test_a_present_weight_of_exactly_zero_is_present():
    mask = torch.tensor([True, True, True, False])
    weight = torch.tensor([0.0, 2.0, 3.0, 0.0])
    change = build("sparse-momentum", {"redistribution": "none"}).update(
        update(view(weight, mask, torch.tensor([0.0, 1.0, 1.0, 5.0])), rate=0.25)
    )
    assert change.removed[0].tolist() == [True, False, False, False]
    assert change.masks[0].tolist() == [False, True, True, True]


# ------------------------------------------------------------------------------------------------ schedules


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, lambda t: 0.1 * (1 + math.cos(math.pi * t))),
        ({"decay": "linear"}, lambda t: 0.2 * (1 - t)),
        ({"decay": "constant"}, lambda t: 0.2),
        ({"prune_rate": 0.5, "reference": True}, lambda t: 0.005 + 0.2475 * (1 + math.cos(math.pi * t))),
    ],
)
def test_the_prune_rate_decays_as_declared(options, expected):
    rate = build("sparse-momentum", options).rate
    for t in (0.0, 0.1, 0.5, 0.9, 1.0):
        assert rate(t) == pytest.approx(expected(t), abs=1e-12)


@pytest.mark.parametrize(
    ("arguments", "moments"),
    [
        ({"steps_per_epoch": 5, "update_every": None}, [5, 10, 15]),
        ({"update_every": 4}, [4, 8, 12, 16]),
        ({"update_every": 7}, [7, 14]),
    ],
)
def test_updates_come_per_epoch_or_every_k_steps_but_not_after_the_last(arguments, moments):
    run = Manual("sparse-momentum", [torch.rand(4, 5), torch.rand(5, 6)], density=0.5, steps=20, **arguments)
    for _ in range(20):
        run.step()
    assert [record.step for record in run.handle.journal] == moments
    rates = [0.1 * (1 + math.cos(math.pi * t / 20)) for t in moments]
    assert [record.prune_rate for record in run.handle.journal] == pytest.approx(rates)


# ------------------------------------------------------------------------------------------------ the reference switch


def test_the_reference_gates_the_cap_on_nearly_dense_layers():
    paper, reference = build("sparse-momentum", {}), build("sparse-momentum", {"reference": True})

    def removed(method, q):
        layers = [layer_of(90, 100, q), layer_of(50, 100, 1)]
        return int(method.update(update(*layers, rate=0.5)).removed[0].count_nonzero())

    assert removed(paper, 9) == 9
    assert removed(reference, 9) == 9
    assert removed(paper, 0.1) == 9
    assert removed(reference, 0.1) == 45


def test_the_reference_shares_none_by_size():
    layers = [layer_of(20, 100, 1), layer_of(20, 300, 9)]
    assert after(build("sparse-momentum", {"redistribution": "none"}), *layers, rate=0.5) == [20, 20]
    by_size = build("sparse-momentum", {"redistribution": "none", "reference": True})
    assert after(by_size, *layers, rate=0.5) == [15, 25]
    assert by_size.redistribute.share is SHARES["size"]


@pytest.mark.parametrize(("just_pruned", "value"), [("keep", 0.5), ("zero", 0.0)])
def test_a_weight_pruned_and_regrown_at_once_keeps_its_value_or_restarts(just_pruned, value):
    run = Manual(
        "sparse-momentum",
        [[[0.5, 2.0, 3.0, 0.0]]],
        [[[1, 1, 1, 0]]],
        {"just_pruned": just_pruned, "decay": "constant", **LETTER},
    )
    run.step([[9.0, 1.0, 1.0, 1.0]])
    assert run.handle.journal[0].layers[0].regrown_at_once == 1
    assert run.weights[0].tolist() == [[value, 2.0, 3.0, 0.0]]
    assert run.slot("momentum_buffer").tolist() == [[9.0, 1.0, 1.0, 0.0]]


@pytest.mark.parametrize(("grown_momentum", "value"), [("keep", 9.0), ("zero", 0.0)])
def test_a_grown_weight_starts_with_the_momentum_that_chose_it_or_with_none(grown_momentum, value):
    options = {"grown_momentum": grown_momentum, "decay": "constant"}
    run = Manual("sparse-momentum", [[[0.5, 2.0, 3.0, 0.0]]], [[[1, 1, 1, 0]]], options)
    run.step([[1.0, 1.0, 1.0, 9.0]])
    assert run.handle.masks["0"].tolist() == [[False, True, True, True]]
    assert run.slot("momentum_buffer").tolist() == [[0.0, 1.0, 1.0, value]]


# ------------------------------------------------------------------------------------------------ momentum


def test_the_journal_records_each_layers_share_of_momentum():
    run = Manual("sparse-momentum", [torch.ones(2, 4), torch.ones(4, 4)], [torch.ones(2, 4), torch.eye(4)])
    run.step(torch.full((2, 4), 3.0), -torch.eye(4) + 7 * (1 - torch.eye(4)))
    assert [row.momentum_share for row in run.handle.journal[0].layers] == pytest.approx([0.75, 0.25])


def test_the_optimizers_buffer_and_an_own_average_give_the_same_masks():
    runs = [
        Manual("sparse-momentum", [torch.arange(1.0, 41).view(5, 8), torch.arange(40.0, 0, -1).view(5, 8)],
                options=LETTER, density=0.4, update_every=3, momentum=source)
        for source in ("optimizer", "gradient")
    ]  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    for _ in range(15):
        gradients = [torch.randn(5, 8, generator=generator) for _ in range(2)]
        masks = [run.step(*gradients).masks for run in runs]
        assert all(torch.equal(a, b) for a, b in zip(*masks, strict=True))
    assert runs[0].handle.updates == 5
    assert runs[0].handle.journal[-1].layers[0].distance_to_start > 0


def test_nesterov_does_not_change_masks_for_equal_gradients():
    runs = [
        Manual("sparse-momentum", [torch.arange(1.0, 41).view(5, 8)] * 2, density=0.4, update_every=3,
               optimizer=lambda p, n=nesterov: torch.optim.SGD(p, lr=0.0, momentum=0.9, nesterov=n))
        for nesterov in (False, True)
    ]  # fmt: skip
    generator = torch.Generator().manual_seed(1)
    for _ in range(9):
        gradients = [torch.randn(5, 8, generator=generator) for _ in range(2)]
        masks = [run.step(*gradients).masks for run in runs]
        assert all(torch.equal(a, b) for a, b in zip(*masks, strict=True))


def test_adam_is_scored_by_the_ratio_of_its_moments():
    run = Manual("sparse-momentum", [torch.rand(4, 6) + 1], density=0.5, update_every=50, window_tolerance=0.0,
                 optimizer=lambda p: torch.optim.Adam(p, lr=1e-3))  # fmt: skip
    generator = torch.Generator().manual_seed(2)
    m, v = torch.zeros(4, 6), torch.zeros(4, 6)
    for _ in range(7):
        gradient = torch.randn(4, 6, generator=generator)
        run.step(gradient)
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
    torch.testing.assert_close(run.handle.network.view(0).momentum, m / (v.sqrt() + 1e-8))


# ------------------------------------------------------------------------------------------------ the growth window


def network():
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 8), nn.Tanh(), nn.Linear(8, 3))


def batches(count):
    generator = torch.Generator().manual_seed(7)
    return [(torch.randn(16, 6, generator=generator), torch.randn(16, 3, generator=generator)) for _ in range(count)]


def dense_momentum_run(make, masks, data, every, score):
    """The description taken literally: dense gradients, unmasked optimizer state, weights masked after each step."""
    model = network()
    optimizer = make(model.parameters())
    weights = [model[i].weight for i in (0, 2, 4)]

    def apply():
        for weight, mask in zip(weights, masks, strict=True):
            weight.data.mul_(mask)

    apply()
    for step, (inputs, targets) in enumerate(data, start=1):
        optimizer.zero_grad()
        (model(inputs) - targets).square().mean().backward()
        optimizer.step()
        apply()
        if step % every == 0 and step < len(data):
            flat = [
                {"weight": w.detach().view(-1).tolist(), "mask": m.view(-1).tolist(),
                 "momentum": score(optimizer.state[w]).view(-1).tolist()}
                for w, m in zip(weights, masks, strict=True)
            ]  # fmt: skip
            rate = 0.25 * (1 + math.cos(math.pi * step / len(data)))
            fresh = oracle_update(flat, rate)[0]
            masks = [torch.tensor(new).view_as(old) for new, old in zip(fresh, masks, strict=True)]
            apply()
    return model, masks


def regrow_run(make, data, every):
    model = network()
    optimizer = make(model.parameters())
    handle = regrow.sparsify(
        model,
        optimizer,
        density=0.3,
        steps=len(data),
        update_every=every,
        window_tolerance=0.0,
        prune_rate=0.5,
        **LETTER,
    )
    first = [mask.clone() for mask in handle.masks.values()]
    for inputs, targets in data:
        optimizer.zero_grad()
        (model(inputs) - targets).square().mean().backward()
        optimizer.step()
    return model, handle, first


@pytest.mark.parametrize("every", [1, 4, 10])
@pytest.mark.parametrize("settings", [{}, {"nesterov": True, "weight_decay": 1e-2}, {"weight_decay": 1e-2}])
def test_tolerance_zero_is_dense_momentum_to_the_last_bit(settings, every):
    def make(parameters):
        return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, **settings)

    data = batches(40)
    model, handle, first = regrow_run(make, data, every)
    by_hand, masks = dense_momentum_run(make, first, data, every, lambda state: state["momentum_buffer"])
    assert handle.updates == 39 // every
    assert all(torch.equal(a, b) for a, b in zip(handle.masks.values(), masks, strict=True))
    for (name, mine), theirs in zip(model.named_parameters(), by_hand.parameters(), strict=True):
        assert torch.equal(mine, theirs), name


def test_tolerance_zero_is_dense_adam():
    def make(parameters):
        return torch.optim.Adam(parameters, lr=0.01)

    data = batches(40)
    model, handle, first = regrow_run(make, data, 8)
    score = lambda state: state["exp_avg"] / (state["exp_avg_sq"].sqrt() + 1e-8)  # noqa: E731
    by_hand, masks = dense_momentum_run(make, first, data, 8, score)
    assert all(torch.equal(a, b) for a, b in zip(handle.masks.values(), masks, strict=True))
    for mine, theirs in zip(model.parameters(), by_hand.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("tolerance", "open_steps"), [(1e-3, 66), (0.1, 22), (0.0, 100)])
def test_the_window_opens_for_the_last_steps_before_an_update(tolerance, open_steps):
    run = Manual("sparse-momentum", [torch.rand(3, 4)], density=0.5, steps=300, update_every=100,
                 window_tolerance=tolerance)  # fmt: skip
    needed = []
    for _ in range(300):
        needed.append(run.handle.needs_missing_gradients)
        run.step()
    once = [False] * (100 - open_steps) + [True] * open_steps
    assert needed == once + once + [False] * 100


def test_the_window_agrees_with_full_momentum_up_to_the_tolerance():
    scores = {}
    for tolerance in (0.0, 1e-2):
        run = Manual("sparse-momentum", [torch.rand(6, 8)], density=0.5, steps=200, update_every=100,
                     window_tolerance=tolerance)  # fmt: skip
        generator = torch.Generator().manual_seed(3)
        for _ in range(99):
            run.step(torch.rand(6, 8, generator=generator))
        scores[tolerance] = run.handle.network.view(0).momentum
    gap = (scores[0.0] - scores[1e-2]).abs() / scores[0.0]
    assert 0 < float(gap.max()) < 2e-2


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("growth", ": did you mean 'momentum'"),
        ("decay", r"\. Valid: constant, cosine"),
        ("pruning", r"\. Valid: curvature, magnitude"),
        ("redistribution", ": did you mean 'momentum'"),
    ],
)
def test_unknown_variants_name_the_valid_ones(option, hint):
    with pytest.raises(ConfigurationError, match=rf"unknown {option} 'momentumm'{hint}"):
        build("sparse-momentum", {option: "momentumm"})
