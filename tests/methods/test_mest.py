"""MEST: mutation between two bounds with a shrinking gap."""

import pytest
import torch

from regrow.methods import build
from tests.support.manual import Manual
from tests.support.views import update, view


def run_of(**options):
    return Manual("mest", [torch.rand(10, 20) + 0.1, torch.rand(20, 15) + 0.1], density=0.2, steps=80, update_every=5,
                  options=options)  # fmt: skip


def gap(t):
    return 0.2 if t < 45 else 0.1 if t < 60 else 0.0


def test_elastic_mutation_prunes_to_the_lower_bound_and_returns():
    run = run_of()
    for _ in range(80):
        run.step()
        assert run.handle.nonzeros == 100
    for record in run.handle.journal:
        moved = sum(row.removed for row in record.layers)
        assert moved == sum(row.grown for row in record.layers) == round(100 * gap(record.step))


def test_soft_memory_bound_trains_above_the_target_until_the_gap_closes():
    run = run_of(soft=True)
    assert run.handle.nonzeros == 120
    for t in range(1, 81):
        run.step()
        assert run.handle.nonzeros == (120 if t < 45 else 110 if t < 60 else 100)


def test_a_weight_drawn_again_at_once_restarts_at_zero():
    run = Manual("mest", [[[1.0, 2.0, 3.0, 4.0, 5.0]]], [[[1] * 5]], steps=80)
    run.step()
    assert run.handle.journal[0].layers[0].regrown_at_once == 1
    assert run.weights[0].tolist() == [[0.0, 2.0, 3.0, 4.0, 5.0]]
    assert run.slot("momentum_buffer").tolist() == [[0.0, 1.0, 1.0, 1.0, 1.0]]


def test_the_score_may_weigh_in_the_gradient():
    layer = view(torch.tensor([1.0, 2.0, 3.0, 0.0]), gradient=torch.tensor([9.0, 0.0, 0.0, 0.0]))
    for weight, gone in ((0.0, 0), (1.0, 1)):
        change = build("mest", {"gradient_weight": weight}).update(update(layer, floors=[2]))
        assert change.removed[0].nonzero().item() == gone


def test_a_floor_below_one_weight_per_layer_is_raised():
    run = Manual("mest", [torch.ones(1, 1), torch.ones(1, 1), torch.ones(1, 1)], density=1.0, steps=20)
    for _ in range(20):
        run.step()
    assert run.counts == [1, 1, 1]


def test_mutation_needs_no_gradient_of_missing_weights():
    assert build("mest", {}).needs == frozenset()
    assert build("mest", {"gradient_weight": 0.1}).needs == {"gradient"}
    assert pytest.approx(5) == build("mest", {}).when.epochs
