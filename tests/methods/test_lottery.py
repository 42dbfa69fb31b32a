"""Lottery tickets: densities keep^round, weights back to w_0 or w_k."""

import pytest
import torch

from tests.support.manual import Manual


def plain(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


@pytest.mark.parametrize("select", ["layer", "global"])
def test_densities_are_powers_of_keep_down_to_the_target(select):
    run = Manual("lottery-ticket", [torch.randn(10, 20), torch.randn(20, 15)], density=0.3, options={"select": select},
                 optimizer=plain)  # fmt: skip
    counts = []
    for _ in range(8):
        before = run.masks
        for _ in range(3):
            run.step(torch.randn(10, 20), torch.randn(20, 15))
        more = run.handle.rewind()
        counts.append(run.handle.nonzeros)
        assert not any(bool((new & ~old).any()) for old, new in zip(before, run.masks, strict=True))
        if not more:
            break
    assert counts == [400, 320, 256, 205, 164, 150, 150]


@pytest.mark.parametrize("rewind_step", [0, 2])
def test_survivors_return_to_their_early_values_and_the_rest_is_gone(rewind_step):
    run = Manual("lottery-ticket", [torch.randn(6, 6)], density=0.5, options={"rewind_step": rewind_step},
                 optimizer=plain)  # fmt: skip
    history = [run.weights[0]]
    for _ in range(5):
        history.append(run.step(torch.randn(6, 6)).weights[0])
    last = history[-1].abs().view(-1)
    run.handle.rewind()
    expected = torch.zeros(36, dtype=torch.bool)
    expected[last.argsort(descending=True)[:29]] = True
    assert torch.equal(run.masks[0].view(-1), expected)
    assert torch.equal(run.weights[0], history[rewind_step] * run.masks[0])
    assert run.handle.step == rewind_step
    assert not run.optimizer.state
    run.step(torch.randn(6, 6))
    run.handle.rewind()
    assert torch.equal(run.weights[0], history[rewind_step] * run.masks[0])
