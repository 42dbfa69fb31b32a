"""RigL: the mask update replaces the weight update at t = 0, dT, ... < T_end."""

import math

import pytest
import torch

from tests.support.manual import Manual


def test_masks_change_instead_of_weights_until_the_end_of_the_schedule():
    run = Manual("rigl", [torch.rand(6, 10) + 0.1, torch.rand(10, 4) + 0.1], density=0.5, steps=40, update_every=10,
                 optimizer=lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))  # fmt: skip
    moments = []
    for t in range(40):
        masks, weights = run.masks, run.weights
        run.step(torch.rand(6, 10), torch.rand(10, 4))
        survivors = [a & b for a, b in zip(masks, run.masks, strict=True)]
        changed = any(bool((a != b).any()) for a, b in zip(masks, run.masks, strict=True))
        moved = any(bool((a[s] != b[s]).any()) for a, b, s in zip(weights, run.weights, survivors, strict=True))
        assert changed != moved
        moments += [t] if changed else []
    assert moments == [0, 10, 20]
    rates = [0.15 * (1 + math.cos(math.pi * t / 30)) for t in moments]
    assert [record.prune_rate for record in run.handle.journal] == pytest.approx(rates)


def test_growth_follows_the_current_gradient_and_starts_from_nothing():
    run = Manual("rigl", [[[1.0, -2.0, 3.0, 4.0, 0.0, 0.0, 0.0, 0.0]]], [[[1] * 4 + [0] * 4]], {"prune_rate": 0.5},
                 lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), update_every=2)  # fmt: skip
    run.step([[1.0] * 8])  # t = 0: drops 1 and -2, grows the lowest indices of equal gradients: those two
    assert run.weights[0][0].tolist() == [1.0, -2.0, 3.0, 4.0, 0.0, 0.0, 0.0, 0.0]
    run.step([[0.0] * 8])
    run.step([[0.0, 0.0, 0.0, 0.0, 1.0, -9.0, 2.0, 5.0]])  # t = 2: one of them drops (f < 1/2), one comes
    assert run.masks[0][0].tolist() == [False, True, True, True, False, True, False, False]
    assert float(run.weights[0][0, 5]) == 0.0
    assert run.slot("momentum_buffer")[0, 5] == 0.0
    assert run.slot("momentum_buffer")[0, 0] == 0.0


def test_a_dropped_weight_that_returns_keeps_value_and_state():
    run = Manual("rigl", [[[0.5, 2.0, 3.0, 4.0, 0.0]]], [[[1] * 4 + [0]]], {"prune_rate": 0.5}, update_every=2,
                 optimizer=lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))  # fmt: skip
    run.step([[0.0] * 5])
    run.step([[1.0, 0.0, 0.0, 0.0, 0.0]])
    run.step([[9.0, 0.0, 0.0, 0.0, 1.0]])
    assert run.handle.journal[1].layers[0].regrown_at_once == 1
    assert float(run.weights[0][0, 0]) == pytest.approx(0.4)
    assert float(run.slot("momentum_buffer")[0, 0]) == 1.0


def test_only_update_steps_need_gradients_of_missing_weights():
    run = Manual("rigl", [torch.rand(6, 10)], density=0.5, steps=40, update_every=10)
    needed = []
    for _ in range(40):
        needed.append(run.handle.needs_missing_gradients)
        run.step()
    assert [t for t, need in enumerate(needed) if need] == [0, 10, 20]
