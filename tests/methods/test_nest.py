"""NeST: which connections grow, where they start, and how the density moves."""

import pytest
import torch

from regrow.methods.nest import grown_values, up_and_down
from regrow.testing.trial import Subject, Trial
from tests.support.views import view

G = torch.tensor([[0.1, -0.5, 0.02], [0.3, 0.05, -0.4]])


def test_growth_of_the_vector():
    mask = torch.tensor([[True, False, True], [False, False, False]])
    born, start = grown_values(view(torch.zeros(2, 3), mask, gradient=G), 2, 0.1)
    assert born.nonzero().tolist() == [[0, 1], [1, 2]]
    assert start[born].tolist() == pytest.approx([0.05, 0.04])


def test_density_rises_and_falls():
    curve = up_and_down(0.1, 0.3, 0.03, 0.3, 0.8)
    assert [round(curve(t), 4) for t in (0.0, 0.15, 0.3, 0.55, 0.8, 1.0)] == [0.1, 0.2, 0.3, 0.0949, 0.03, 0.03]
    assert up_and_down(0.1, 0.3, 1.0, 0.3, 0.8)(0.0) == 1.0


def test_a_run_grows_from_its_seed_and_ends_at_its_density():
    trial = Trial(Subject("nest"))
    counts = [trial.handle.nonzeros, *(state.handle.nonzeros for state in trial.run())]
    assert counts[0] == 22
    assert max(counts) > counts[0]
    assert counts[-1] == 67


def test_grown_weights_start_with_one_step_of_descent():
    trial = Trial(Subject("nest", {"step": 0.5}))
    before = trial.masks()
    list(trial.run(2))
    born = [new & ~old for old, new in zip(before, trial.masks(), strict=True)]
    assert any(bool(b.any()) for b in born)
    for (_, weight, _, _), b in zip(trial.layers(), born, strict=True):
        assert bool((weight[b] != 0).all())
