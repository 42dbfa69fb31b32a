"""DSR: threshold control, regrowth by survivors, not at positions just freed."""

import pytest
import torch

from regrow.methods import build
from tests.support.views import update, view


def layer(values, size, seed=0):
    weight = torch.zeros(size)
    weight[: len(values)] = torch.tensor(values)
    return view(weight, seed=seed)


@pytest.mark.parametrize(("target", "after"), [(2, 0.5), (4, 1.0), (10, 2.0), (0.4, 1.0), (0.1, 0.5)])
def test_the_threshold_follows_the_number_removed(target, after):
    work = update(layer([0.1, 0.2, 5.0, 6.0, 7.0], 20), layer([0.3, 0.9, 8.0, 9.0, 1.0], 20))
    method = build("dsr", {"target": target, "threshold": 1.0})
    change = method.update(work)
    assert [int(r.count_nonzero()) for r in change.removed] == [2, 2]
    assert work.memory["threshold"] == after


def test_growth_is_proportional_to_survivors_and_avoids_what_was_just_pruned():
    for seed in range(20):
        work = update(layer([0.1] * 6 + [5.0] * 2, 20, seed), layer([0.1] * 2 + [5.0] * 6, 20, seed))
        change = build("dsr", {"threshold": 1.0}).update(work)
        assert [int(g.count_nonzero()) for g in change.grown] == [2, 6]
        assert not any(bool((g & r).any()) for g, r in zip(change.grown, change.removed, strict=True))


def test_overflow_is_shared_in_the_proportions_of_the_survivors():
    layers = [layer([0.1] * 12 + [5.0] * 2, 40), layer([5.0] * 8, 9), layer([5.0] * 4, 40)]
    change = build("dsr", {"threshold": 1.0}).update(update(*layers))
    assert [int(g.count_nonzero()) for g in change.grown] == [4, 1, 7]


def test_a_layer_below_the_threshold_keeps_its_largest_weight():
    change = build("dsr", {"threshold": 10.0}).update(update(layer([0.1, 0.3, 0.2], 9)))
    assert change.removed[0].tolist()[:3] == [True, False, True]


def test_freed_positions_return_only_when_nothing_else_is_left():
    full = layer([0.1, 5.0, 6.0], 3)
    change = build("dsr", {"threshold": 1.0}).update(update(full))
    assert change.masks[0].all()


def test_the_period_doubles_and_updates_stop_at_95_percent():
    from tests.support.manual import Manual

    run = Manual("dsr", [torch.rand(10, 10)], density=0.5, steps=400, update_every=10)
    for _ in range(400):
        run.step()
    moments = [record.step for record in run.handle.journal]
    assert moments == [*range(10, 50, 10), *range(60, 160, 20), *range(160, 280, 40), *range(320, 381, 80)]
