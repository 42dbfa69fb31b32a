"""The allocation solver and the shares."""

from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regrow.topology.redistribute import SHARES, Redistribute, allocate, per_cost
from regrow.topology.view import needs_of
from tests.support.examples import examples
from tests.support.oracle import allocate as oracle_allocate
from tests.support.views import view


@pytest.mark.parametrize(
    ("q", "total", "capacity", "grown"),
    [
        ([8, 1, 1], 18, [7, 95, 190], [7, 6, 5]),
        ([10, 5, 1, 1], 35, [2, 9, 95, 975], [2, 9, 12, 12]),
        ([98, 1, 1], 23, [2, 8, 920], [2, 8, 13]),
    ],
)
def test_published_vectors(q, total, capacity, grown):
    assert allocate(q, total, capacity) == grown


layers = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 12)), min_size=1, max_size=7)


@examples("allocation")
@given(layers, st.data())
def test_allocation_is_exact_fits_and_is_the_water_level(pairs, data):
    shares, capacity = map(list, zip(*pairs, strict=True))
    total = data.draw(st.integers(0, sum(capacity)))
    counts = allocate(shares, total, capacity)
    assert sum(counts) == total
    assert all(0 <= n <= c for n, c in zip(counts, capacity, strict=True))
    norm = sum(shares)
    wanted = [total * s / norm for s in shares] if norm else [total / len(shares)] * len(shares)
    # One level of water above what open layers wanted; closed layers would be at or below it.
    lifts = [n - w for n, w, c in zip(counts, wanted, capacity, strict=True) if n < c]
    assert not lifts or max(lifts) - min(lifts) < 2
    if norm:
        assert counts == oracle_allocate([Fraction(total * s, norm) for s in shares], capacity)


@examples("order of layers")
@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 50)), min_size=2, max_size=6, unique_by=lambda p: p[0]),
       st.data())  # fmt: skip
def test_the_order_of_layers_does_not_matter_but_for_ties(pairs, data):
    total = data.draw(st.integers(0, sum(c for _, c in pairs)))
    order = data.draw(st.permutations(range(len(pairs))))
    plain = allocate([s for s, _ in pairs], total, [c for _, c in pairs])
    moved = allocate([pairs[i][0] for i in order], total, [pairs[i][1] for i in order])
    back = dict(zip(order, moved, strict=True))
    assert all(abs(back[i] - plain[i]) <= 1 for i in range(len(pairs)))


def test_proportional_overflow_keeps_the_proportions():
    assert allocate([8, 2, 1], 22, [4, 90, 90], "proportional") == [4, 12, 6]
    assert allocate([8, 2, 1], 22, [4, 90, 90], "equal") == [4, 10, 8]
    assert allocate([1, 0, 0], 10, [4, 90, 90], "proportional") == [4, 3, 3]


@pytest.mark.parametrize(
    ("shares", "total", "capacity", "grown"),
    [
        ([1, 1, 1], 4, [9, 9, 9], [2, 1, 1]),
        ([16, 10, 4], 5, [3, 2, 7], [3, 2, 0]),
        ([16, 10, 4, 2, 4], 3, [2, 0, 6, 10, 9], [2, 0, 1, 0, 0]),
        ([9, 7, 16, 13], 10, [4, 4, 12, 6], [2, 2, 3, 3]),
    ],
)
def test_equal_fractions_are_ties_whatever_their_last_bits(shares, total, capacity, grown):
    assert allocate(shares, total, capacity) == grown


def test_too_little_room_is_an_error():
    with pytest.raises(ValueError, match="cannot place 5 weights in room for 3"):
        allocate([1, 1], 5, [1, 2])


def test_shares():
    layer = view(
        torch.tensor([1.0, -3.0, 0.0, 0.0]),
        torch.tensor([True, True, True, False]),
        torch.tensor([1.0, -2.0, 6.0, 99.0]),
    )
    layer.removed = 1
    found = {name: share(layer) for name, share in SHARES.items() if name != "second-moment"}
    assert found == {
        "momentum": 3.0, "magnitude": pytest.approx(4 / 3), "nonzeros": 3.0, "survivors": 2.0, "size": 4.0,
    }  # fmt: skip
    empty = view(torch.zeros(2), momentum=torch.ones(2))
    assert SHARES["momentum"](empty) == SHARES["magnitude"](empty) == 0.0
    layer.evidence._second = torch.tensor([4.0, 16.0, 9.0, 100.0])
    assert SHARES["second-moment"](layer) == 3.0


def test_momenta_of_groups_are_compared_on_one_scale():
    layer = view(torch.ones(2), momentum=torch.full((2,), 4.0), momentum_scale=0.5)
    assert SHARES["momentum"](layer) == 2.0


def test_a_price_divides_the_share():
    layer = view(torch.ones(3), cost=4.0)
    assert per_cost(SHARES["size"], 0.5)(layer) == 1.5
    assert per_cost(SHARES["size"], 0.0) is SHARES["size"]
    assert needs_of(per_cost(SHARES["momentum"], 1.0)) == {"present momentum"}


def test_without_any_share_every_layer_gets_its_own_back():
    layers = [view(torch.ones(9), momentum=torch.zeros(9)) for _ in range(3)]
    for layer, removed in zip(layers, (3, 1, 2), strict=True):
        layer.removed = removed
    assert Redistribute()(layers, 6, [9, 9, 9]) == [3, 1, 2]
