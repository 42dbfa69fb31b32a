"""Gradual magnitude pruning: the cubic, exactly, and masks that only lose."""

import pytest
import torch

from tests.support.manual import Manual


@pytest.mark.parametrize("select", ["layer", "global"])
@pytest.mark.parametrize("every", [1, 3])
def test_densities_follow_the_cubic_and_masks_only_lose(select, every):
    shapes = [(7, 9), (9, 11), (11, 5), (3, 3)]
    run = Manual("gradual-pruning", [torch.randn(s) for s in shapes], density=0.1, steps=120, update_every=every,
                 options={"select": select, "begin": 0.25, "end": 0.75},
                 optimizer=lambda p: torch.optim.SGD(p, lr=0.01))  # fmt: skip
    total = sum(a * b for a, b in shapes)
    for t in range(1, 120):
        before = run.masks
        run.step(*(torch.randn(s) for s in shapes))
        moment = t // every * every
        left = 1 - min(max((moment / 120 - 0.25) / 0.5, 0), 1)
        assert run.handle.nonzeros == int(total * (0.1 + 0.9 * left**3) + 0.5)
        assert not any(bool((new & ~old).any()) for old, new in zip(before, run.masks, strict=True))
    assert run.handle.nonzeros == int(0.1 * total + 0.5)


def test_the_smallest_weights_of_each_layer_go():
    run = Manual("gradual-pruning", [torch.arange(1.0, 101).view(10, 10), -torch.arange(101.0, 201).view(10, 10)],
                 density=0.5, steps=10, options={"begin": 0.0, "end": 0.2}, update_every=2)  # fmt: skip
    run.step().step()
    for mask in run.masks:
        assert not mask.view(-1)[:50].any()
        assert mask.view(-1)[50:].all()


def test_over_the_whole_network_the_smaller_layer_loses_more():
    run = Manual("gradual-pruning", [torch.arange(1.0, 101).view(10, 10), -torch.arange(101.0, 201).view(10, 10)],
                 density=0.5, steps=10, options={"begin": 0.0, "end": 0.2, "select": "global"}, update_every=2)  # fmt: skip
    run.step().step()
    assert run.counts == [1, 99]
