"""Which weights go."""

import pytest
import torch

from regrow.topology.prune import (
    Prune,
    Threshold,
    capped_fraction,
    down_to_floor,
    floor_fraction,
    fraction,
    gated_fraction,
    keep_one,
    sign_crossing,
)
from tests.support.views import update, view


def layer(nnz, numel, **rest):
    mask = torch.arange(numel) < nnz
    return view(torch.arange(1.0, numel + 1) * mask, mask, **rest)


@pytest.mark.parametrize(
    ("count", "rate", "nnz", "numel", "expected"),
    [
        (fraction, 0.2, 11, 100, 3),
        (fraction, 0.2, 10, 100, 2),
        (fraction, 0.1 + 0.2, 10, 100, 3),
        (floor_fraction, 0.2, 14, 100, 2),
        (floor_fraction, 0.7, 10, 100, 7),
        (capped_fraction, 0.5, 9, 10, 1),
        (capped_fraction, 0.5, 10, 10, 0),
        (capped_fraction, 0.2, 10, 100, 2),
        (capped_fraction, 0.1 + 0.2, 10, 100, 3),
        (capped_fraction, 0.0, 10, 100, 0),
    ],
)
def test_counts(count, rate, nnz, numel, expected):
    work = update(layer(nnz, numel), rate=rate)
    assert count(work) == [expected]


def test_the_gate_needs_a_dense_and_growing_layer():
    count = gated_fraction(lambda view: view.cost)
    dense, sparse = layer(90, 100, cost=3.0), layer(50, 100, cost=1.0)
    work = update(dense, sparse, rate=0.5)
    assert count(work) == [9, 25]
    dense.cost = 0.5
    assert count(work) == [45, 25]


def test_the_gate_computes_every_share_once():
    asked = []
    layers = [layer(90, 100, name=name) for name in "abc"]
    removed = Prune(count=gated_fraction(lambda view: asked.append(view.name) or 1.0))(update(*layers, rate=0.5))
    assert asked == ["a", "b", "c"]
    assert [int(gone.count_nonzero()) for gone in removed] == [45, 45, 45]


def test_floors_and_targets_bound_from_below():
    work = update(layer(10, 20), targets=[7])
    assert down_to_floor(work) == [3]
    work.floors = [4]
    assert down_to_floor(work) == [6]
    work.floors = [12]
    assert down_to_floor(work) == [0]
    with pytest.raises(ValueError, match="density schedule"):
        down_to_floor(update(layer(1, 2)))


def test_the_smallest_magnitudes_of_the_layer_go_and_one_stays():
    weight = torch.tensor([-0.1, 5.0, 0.0, -2.0])
    gone = Prune()(update(view(weight, torch.tensor([True, True, False, True])), rate=0.4))[0]
    assert gone.tolist() == [True, False, False, True]
    assert int(Prune()(update(layer(3, 9), rate=1.0))[0].count_nonzero()) == 2


def test_globally_the_smallest_of_all_layers_go_but_one_of_each_stays():
    layers = [view(torch.tensor([0.1, 0.2, 0.3])), view(torch.tensor([1.0, 2.0, 3.0, 4.0]))]
    gone = Prune(select="global")(update(*layers, rate=0.5))
    assert [g.tolist() for g in gone] == [[True, True, False], [True, True, False, False]]
    gone = Prune(select="global")(update(*layers, targets=[3, 3]))
    assert [int(g.count_nonzero()) for g in gone] == [1, 0]
    gone = Prune(select="global")(update(*layers, rate=1.0))
    assert [int(g.count_nonzero()) for g in gone] == [2, 3]


def test_signs_lose_separately_and_all_zeros_go():
    weight, mask = torch.tensor([1.0, 2.0, -1.0, -2.0, 0.0, 0.0]), torch.tensor([True] * 5 + [False])
    assert Prune(select="sign")(update(view(weight, mask), rate=0.5))[0].nonzero().squeeze(1).tolist() == [0, 2, 4]
    assert not Prune(select="sign")(update(view(weight, mask), rate=0.0))[0].any()
    everything = Prune(select="sign")(update(view(torch.tensor([1.0, -3.0])), rate=1.0))[0]
    assert everything.tolist() == [True, False]


def test_keep_one_returns_the_best():
    v = view(torch.tensor([1.0, 2.0]))
    assert keep_one(v, torch.tensor([True, True]), v.weight).tolist() == [True, False]
    assert keep_one(v, torch.tensor([False, True]), v.weight).tolist() == [False, True]


def test_a_threshold_takes_its_goal_from_the_prune_rate_by_default():
    work = update(layer(10, 20), rate=0.2)
    Threshold(start=2.5)(work)
    assert work.memory["threshold"] == 2.5
    Threshold(start=2.5)(update(layer(10, 20), rate=0.9, memory=work.memory))
    assert work.memory["threshold"] == 5.0


def test_weights_beyond_their_sign_go():
    v = view(torch.tensor([1.0, -1.0, 2.0, 0.0]), torch.tensor([True, True, True, False]))
    v.memory["sign"] = torch.tensor([1, 1, -1, -1], dtype=torch.int8)
    assert sign_crossing(update(v))[0].tolist() == [False, True, True, False]
    v.memory["sign"] = torch.tensor([-1, 1, -1, -1], dtype=torch.int8)
    assert int(sign_crossing(update(v))[0].count_nonzero()) == 2
