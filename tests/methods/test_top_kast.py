"""Top-KAST: forward set A, backward set B, the rest untouched."""

import torch

from tests.support.manual import Manual

VALUES = [[8.0, -7.0, 6.0, 5.0, -4.0, 3.0, 2.0, 1.0, 0.5, 0.25]]


def run_of(penalty=0.0, every=1, **settings):
    return Manual("top-kast", [VALUES], density=0.3, options={"exploration": 0.3, "penalty": penalty},
                  update_every=every, optimizer=lambda p: torch.optim.SGD(p, lr=0.1, **settings))  # fmt: skip


def test_the_forward_set_is_the_top_share_and_the_backward_set_a_wider_one():
    run = run_of()
    assert run.weights[0][0].tolist() == [8.0, -7.0, 6.0] + [0.0] * 7
    assert run.handle.parameters[0].reach.mask[0].tolist() == [True] * 6 + [False] * 4


def test_only_the_backward_set_learns():
    run = run_of(weight_decay=0.1)
    run.step([[1.0] * 10])
    theta = run.handle.parameters[0].theta[0]
    expected = [v - 0.1 * (1 + 0.1 * v) for v in VALUES[0][:6]] + VALUES[0][6:]
    torch.testing.assert_close(theta, torch.tensor(expected))
    assert torch.equal(run.weights[0][0], theta * run.masks[0][0])


def test_a_weight_of_the_backward_set_enters_the_forward_set_when_it_has_grown():
    run = run_of()
    run.step([[0.0, 0.0, 0.0, -20.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]])
    assert run.masks[0][0].nonzero().squeeze(1).tolist() == [0, 1, 3]
    assert run.weights[0][0, 3] == 7.0
    assert run.handle.parameters[0].theta[0, 2] == 6.0


def test_the_exploration_loss_weighs_the_outer_set_by_one_over_density():
    run = run_of(penalty=0.5)
    run.step([[0.0] * 10])
    strength = torch.tensor([1.0] * 3 + [1 / 0.3] * 3 + [0.0] * 4)
    values = torch.tensor(VALUES[0])
    torch.testing.assert_close(run.handle.parameters[0].theta[0], values - 0.1 * 0.5 * strength * values)


def test_sets_stay_between_refreshes():
    run = run_of(every=3)
    for t in range(1, 4):
        run.step([[0.0, 0.0, 0.0, -20.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]])
        assert bool(run.masks[0][0, 3]) == (t == 3)
