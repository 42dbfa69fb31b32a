"""Static: random masks that never change."""

import pytest
import torch

from tests.support.manual import Manual


@pytest.mark.parametrize(("distribution", "counts"), [("uniform", [10, 45, 20]), ("erk", [17, 35, 23])])
def test_masks_stay_and_counts_follow_the_distribution(distribution, counts):
    run = Manual("static", [torch.rand(5, 10), torch.rand(15, 15), torch.rand(10, 10)], density=0.2,
                 distribution=distribution, optimizer=lambda p: torch.optim.SGD(p, lr=0.1))  # fmt: skip
    masks, weights = run.masks, run.weights
    assert run.counts == counts
    for _ in range(5):
        run.step()
    assert all(torch.equal(a, b) for a, b in zip(masks, run.masks, strict=True))
    assert all(bool((a[m] != b[m]).all()) for a, b, m in zip(weights, run.weights, masks, strict=True))
    assert run.handle.updates == 0
    assert not run.handle.needs_missing_gradients


def test_every_position_is_equally_likely():
    hits = torch.zeros(4, 5)
    for seed in range(600):
        hits += Manual("static", [torch.rand(4, 5)], density=0.25, seed=seed).masks[0]
    assert float((hits - 150).abs().max()) < 5 * (600 * 0.25 * 0.75) ** 0.5
