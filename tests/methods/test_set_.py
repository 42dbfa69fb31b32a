"""SET: per-sign floors, random growth, constant rate."""

import torch

from regrow.methods import build
from tests.support.manual import Manual
from tests.support.views import update, view


def test_each_sign_loses_the_floor_of_its_share_and_zeros_go():
    weight = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, -0.05, -0.15, -0.25, -0.35, 0.0, 0.0, 0.0])
    mask = torch.arange(14) < 12  # one present weight is exactly zero
    change = build("set", {}).update(update(view(weight, mask), rate=0.3))
    assert change.removed[0].nonzero().squeeze(1).tolist() == [0, 1, 7, 11]
    assert int(change.grown[0].count_nonzero()) == 4
    assert not (change.grown[0] & mask & ~change.removed[0]).any()


def test_growth_draws_every_free_position_alike():
    weight, mask = torch.arange(1.0, 9), torch.arange(8) < 4
    hits = torch.zeros(8)
    for seed in range(2000):
        hits += build("set", {}).update(update(view(weight * mask, mask, seed=seed), rate=0.25)).grown[0]
    assert hits[1:4].sum() == 0
    free = hits[torch.tensor([0, 4, 5, 6, 7])]
    assert float((free - 400).abs().max()) < 4 * (2000 * 0.2 * 0.8) ** 0.5


def test_grown_weights_start_at_zero_without_momentum():
    run = Manual("set", [[[1.0, -2.0, 3.0, -4.0, 5.0, 6.0, 0.0, 0.0, 0.0, 0.0]]], [[[1] * 6 + [0] * 4]])
    before = run.masks[0]
    run.step()
    born = run.masks[0] & ~before
    lost = before & ~run.masks[0]
    assert int(born.sum()) == int(lost.sum()) > 0
    assert not run.weights[0][born].any()
    assert not run.slot("momentum_buffer")[born | lost].any()


def test_a_weight_drawn_again_at_once_starts_as_any_other_new_one():
    run = Manual("set", [[[1.0, -2.0, 3.0, 4.0, -5.0, -6.0, 7.0, -8.0]]], [[[1] * 8]])  # full: all come back
    run.step()
    assert run.handle.journal[0].layers[0].regrown_at_once == 2
    assert run.weights[0].tolist() == [[0.0, 0.0, 3.0, 4.0, -5.0, -6.0, 7.0, -8.0]]
    assert run.slot("momentum_buffer").tolist() == [[0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]]


def test_masks_are_erdos_renyi_and_no_number_of_steps_is_needed():
    run = Manual("set", [torch.rand(300, 784), torch.rand(100, 300), torch.rand(10, 100)], density=0.05, steps=None)
    assert [round(n / m.numel(), 4) for n, m in zip(run.counts, run.masks, strict=True)] == [0.0385, 0.1113, 0.919]


def test_weights_stuck_at_zero_do_not_pile_up():
    """Units without outgoing weights have no gradient: what grows there stays at zero, and must not stay for ever."""
    torch.manual_seed(0)
    weight, mask = torch.randn(40, 40), torch.rand(40, 40) < 0.1
    dead = torch.arange(40) < 30
    stuck = []
    for seed in range(60):
        change = build("set", {}).update(update(view(weight * mask, mask, seed=seed), rate=0.3))
        mask = change.masks[0]
        weight = torch.where(change.grown[0], torch.randn(40, 40) * ~dead[:, None], weight)
        stuck.append(float(((weight == 0) & mask).sum() / mask.sum()))
    assert max(stuck[-10:]) < 0.7, "left alone, nearly all would be"


def test_without_signs_each_layer_loses_its_smallest_weights():
    weight = torch.tensor([0.1, 0.2, 0.3, 0.4, -0.5, -0.6, -0.7, -0.8, -0.9, -1.0])
    change = build("set", {"by_sign": False}).update(update(view(weight, torch.ones(10, dtype=torch.bool)), rate=0.3))
    assert change.removed[0].nonzero().squeeze(1).tolist() == [0, 1, 2]


def test_the_period_doubles_at_the_stages_and_ends_at_the_stop():
    options = {"stages": [0.25, 0.5], "stop": 0.8}
    run = Manual("set", [torch.rand(10, 10)], density=0.5, options=options, steps=80, update_every=5)
    for _ in range(80):
        run.step()
    assert [record.step for record in run.handle.journal] == [5, 10, 15, 20, 30, 40, 60]
