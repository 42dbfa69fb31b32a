"""Targeted dropout: targets, draws and the ramp."""

import pytest
import torch

from regrow.methods.targeted_dropout import density_of
from regrow.methods.units import largest_of_units
from regrow.testing.trial import Subject, Trial
from tests.support.views import view

W = torch.tensor([[0.5, -0.1], [-0.2, 0.9], [0.05, 0.3], [0.7, -0.4]]).T.contiguous()
TARGETED = torch.tensor([[0, 1], [1, 0], [1, 1], [0, 0]]).T.bool()


def test_targets_of_the_vector():
    kept = largest_of_units(view(W, torch.ones(2, 4, dtype=torch.bool)), 4)
    assert torch.equal(~kept, TARGETED)


def test_draws_of_the_vector():
    u = torch.tensor([[0.9, 0.2], [0.3, 0.6], [0.7, 0.55], [0.1, 0.05]]).T
    trained = W * (~TARGETED | (u >= 0.5))
    wanted = torch.tensor([[0.5, 0], [0, 0.9], [0.05, 0.3], [0.7, -0.4]]).T
    assert torch.equal(trained, wanted)


def test_the_ramp_of_the_vector():
    """0.99 of the weights targeted, T = 20,000 steps of a run of 40,000."""
    curve = density_of(0.01, 1.0)
    targeted = [round(1 - curve(t / 40_000), 6) for t in (10_000, 20_000, 30_000)]
    assert targeted == [0.47025, 0.9405, 0.96525]
    chances = [round(0.99 * min(1, t / 40_000), 6) for t in (10_000, 20_000, 30_000)]
    assert chances == [0.2475, 0.495, 0.7425]


def test_units_share_the_budget_evenly():
    trial = Trial(Subject("targeted-dropout"))
    list(trial.run())
    for mask in trial.masks():
        counts = mask.flatten(1).sum(1)
        assert int(counts.max() - counts.min()) <= 1


def test_certain_drops_train_as_they_evaluate_and_none_at_all_trains_dense():
    always = Trial(Subject("targeted-dropout", {"drop": 1.0, "ramp": 0.0}))
    inputs = always.batch(0)[0]
    trained = always.model(inputs)
    always.model.eval()
    assert torch.equal(always.model(inputs), trained)
    never = Trial(Subject("targeted-dropout", {"drop": 0.0, "ramp": 0.0}))
    never.model(inputs)
    assert torch.equal(never.model[3].weight.detach(), never.handle.parameters[1].theta)


def test_only_kept_weights_receive_gradients():
    trial = Trial(Subject("targeted-dropout", {"drop": 1.0, "ramp": 0.0}))
    theta = trial.handle.parameters[1].theta.clone()
    mask = trial.handle.parameters[1].mask.clone()
    trial.step()
    moved = trial.handle.parameters[1].theta != theta
    assert not bool((moved & ~mask).any())
    assert bool(moved.any())


@pytest.mark.parametrize("option", ["drop", "ramp"])
def test_shares_are_checked(option):
    from regrow.methods import build

    with pytest.raises(ValueError, match=f"{option} must lie in"):
        build("targeted-dropout", {option: 1.5})
