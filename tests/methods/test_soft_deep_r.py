"""Soft-DEEP-R: free walk of dormant weights, clip, revival."""

import pytest
import torch

from regrow.errors import ConfigurationError
from regrow.methods import build
from regrow.testing.trial import Subject, Trial
from tests.support.manual import Manual


def started(noise, l1=0.01, lr=0.5, seed=0):
    torch.manual_seed(seed)
    return Manual(
        "soft-deep-r", [torch.randn(30, 40)], density=0.25, options={"noise": noise, "l1": l1}, steps=50,
        optimizer=lambda p: torch.optim.SGD(p, lr=lr),
    )  # fmt: skip


def theta(run):
    return run.handle.parameters[0].theta * run.handle.network.layer_memory[0]["sign"]


def test_dormant_weights_start_uniformly_between_the_clip_and_zero():
    run = started(noise=1.0)
    lowest = -(1 - 0.25) * (0.5 * 1.0**2 / 2) / (0.25 * 0.01)
    dormant = theta(run)[~run.masks[0]]
    assert lowest <= float(dormant.min()) < 0.98 * lowest
    assert float(dormant.mean()) == pytest.approx(lowest / 2, rel=0.05)
    assert bool((theta(run)[run.masks[0]] > 0).all())


def test_dormant_weights_walk_without_gradient_are_clipped_and_return_above_zero():
    run = started(noise=1.0, l1=100.0)
    lowest = -(1 - 0.25) * 0.25 / (0.25 * 100.0)
    for _ in range(4):
        mask = run.masks[0]
        run.step(torch.zeros(30, 40))
        assert float(theta(run)[~mask].min()) >= lowest - 1e-7
        assert torch.equal(run.masks[0], theta(run) > 0)
    assert run.counts != [300]


def test_without_noise_only_active_weights_move():
    run = started(noise=0.0)
    before, mask = theta(run), run.masks[0]
    run.step(torch.ones(30, 40))
    moved = theta(run) != before
    assert not moved[~mask].any()
    assert moved[mask].all()


def test_a_prior_of_zero_has_no_lower_end():
    with pytest.raises(ConfigurationError, match="l1 must be larger than 0"):
        build("soft-deep-r", {"l1": 0.0})


def test_gradients_reach_the_weights_of_the_newest_mask():
    trial = Trial(Subject("soft-deep-r", {"noise": 3.0}))
    before = trial.masks()
    list(trial.run(4))
    assert any(not torch.equal(old, new) for old, new in zip(before, trial.masks(), strict=True))
    for sparse in trial.handle.parameters:
        assert torch.equal(sparse.reach.mask, sparse.mask)
