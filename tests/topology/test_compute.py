"""Counts of an exact sum within a limit in compute."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regrow.errors import ConfigurationError
from regrow.methods import build
from regrow.topology import compute
from regrow.topology.compute import Bounds, affordable, cheapest, cost_of, most, refuse_infeasible, within
from tests.support.examples import examples
from tests.support.views import update, view

layers = st.lists(
    st.tuples(st.integers(1, 30), st.integers(1, 40), st.floats(0, 9)), min_size=1, max_size=6
)  # size, cost, wanted


@examples("budgets in compute")
@given(layers, st.data())
def test_counts_are_exact_within_bounds_and_within_the_limit(rows, data):
    sizes, costs, wanted = (list(column) for column in zip(*rows, strict=True))
    bounds = Bounds([data.draw(st.integers(0, n)) for n in sizes], sizes)
    total = data.draw(st.integers(sum(bounds.lowest), sum(sizes)))
    least = cost_of(cheapest(total, costs, bounds), costs)
    limit = data.draw(st.floats(least, cost_of(sizes, costs) + 1))
    counts, price = within(wanted, total, costs, limit, bounds)
    assert sum(counts) == total
    assert all(low <= n <= high for low, n, high in zip(bounds.lowest, counts, bounds.highest, strict=True))
    assert affordable(counts, costs, limit)
    assert price >= 0


@examples("budgets in compute")
@given(layers, st.data())
def test_no_other_counts_are_cheaper_and_no_larger_total_fits(rows, data):
    rows = rows[:3]
    sizes, costs = [min(n, 6) for n, _, _ in rows], [c for _, c, _ in rows]
    bounds = Bounds([1] * len(sizes), sizes)
    total = data.draw(st.integers(len(sizes), sum(sizes)))
    every = list(itertools.product(*(range(1, n + 1) for n in sizes)))
    assert cost_of(cheapest(total, costs, bounds), costs) == min(cost_of(e, costs) for e in every if sum(e) == total)
    limit = data.draw(st.integers(sum(costs), sum(costs) * 6))
    assert most(limit, costs, bounds) == max(sum(e) for e in every if cost_of(e, costs) <= limit)


def test_the_price_is_zero_where_the_limit_does_not_bind_and_rises_with_it():
    bounds = Bounds([0, 0, 0], [100, 100, 100])
    prices = [within([2, 1, 1], 100, [9, 3, 1], limit, bounds)[1] for limit in (600, 500, 400, 200)]
    assert prices[0] == 0.0
    assert 0 < prices[1] < prices[2] < prices[3]


def test_the_limit_is_used_up_to_a_few_weights():
    counts, _ = within([5, 1], 1000, [100, 1], 30_000, Bounds([0, 0], [1000, 1000]))
    assert 30_000 - 100 < cost_of(counts, [100, 1]) <= 30_000


def test_infeasible_pairs_are_refused_with_the_nearest_that_fit():
    sizes, costs = [100, 1000], [50.0, 1.0]
    with pytest.raises(
        ConfigurationError, match=r"600 weights cannot keep macs=0.05.*macs=0\.\d+, or density=0\.\d+"
    ) as error:
        refuse_infeasible("macs", 0.05, 600, costs, sizes, 6000.0)
    words = str(error.value).replace(",", "").split()
    enough, fewer = (float(word.split("=")[1]) for word in (words[-3], words[-1]))
    refuse_infeasible("macs", enough, 600, costs, sizes, 6000.0)
    refuse_infeasible("macs", 0.05, int(fewer * 1100), costs, sizes, 6000.0)
    with pytest.raises(ConfigurationError):
        refuse_infeasible("macs", 0.05, int(fewer * 1100) + 3, costs, sizes, 6000.0)


def network(data, seed):
    """A few layers with random masks, weights, momenta and costs."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for index in range(data.draw(st.integers(1, 4))):
        numel = data.draw(st.integers(3, 40))
        mask = torch.rand(numel, generator=generator) < data.draw(st.floats(0.05, 0.95))
        mask[0] = True
        weight, momentum = (torch.randn(numel, generator=generator) for _ in range(2))
        found.append(view(weight * mask, mask, momentum, index=index, cost=float(data.draw(st.integers(1, 50)))))
    return found


@examples("updates with budgets in compute")
@given(st.data(), st.integers(0, 10**6), st.floats(0, 0.9), st.floats(0, 1))
@pytest.mark.parametrize("method", ["sparse-momentum", "snfs-erk", "dsr", "set", "rigl"])
def test_updates_keep_both_budgets_and_move_weights_where_growth_cannot(method, data, seed, rate, place):
    found = network(data, seed)
    costs, before = [layer.cost for layer in found], [layer.nnz for layer in found]
    bounds = Bounds([1] * len(found), [layer.numel for layer in found])
    least, dense = (cost_of(c, costs) for c in (cheapest(sum(before), costs, bounds), bounds.highest))
    limit = least + place * (dense - least)
    recipe = build(method, {})
    for layer in found:
        layer.evidence._gradient = layer.momentum
    change = recipe.update(update(*found, rate=rate, limit=limit))
    after = [int(mask.count_nonzero()) for mask in change.masks]
    assert sum(after) == sum(before)
    assert min(after) >= 1
    assert affordable(after, costs, limit)


def test_without_a_limit_or_with_one_that_does_not_bind_the_update_is_the_papers():
    torch.manual_seed(0)

    def fresh():
        torch.manual_seed(1)
        return [
            view(torch.randn(50) * (torch.rand(50) < 0.4), momentum=torch.randn(50), index=i, cost=c)
            for i, c in enumerate((1.0, 7.0))
        ]

    method = build("sparse-momentum", {})
    plain = method.update(update(*fresh(), rate=0.3))
    loose = update(*fresh(), rate=0.3, limit=1e9)
    assert all(torch.equal(a, b) for a, b in zip(plain.masks, method.update(loose).masks, strict=True))
    assert loose.price is None


def test_a_layer_above_its_share_gives_more_back():
    rich, poor = (
        view(torch.ones(20), momentum=torch.ones(20), index=0, cost=10.0),
        view(torch.arange(50.0) % 2, momentum=torch.ones(50), index=1),
    )
    before = rich.nnz + poor.nnz
    change = build("sparse-momentum", {}).update(update(rich, poor, rate=0.0, limit=100.0))
    after = [int(mask.count_nonzero()) for mask in change.masks]
    assert after[0] < 20
    assert sum(after) == before
    assert compute.affordable(after, [10.0, 1.0], 100.0)
