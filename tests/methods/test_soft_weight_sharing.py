"""Soft weight-sharing: the mixture, its prior, and the assignment."""

import math

import pytest
import torch

from regrow.methods import mixture
from regrow.testing.trial import Subject, Trial


def near(*values):
    return torch.tensor(values, dtype=torch.float64)


W = near(0.02, -0.3, 0.31, 0, 0.58)
MEANS, STDS, PI = near(0, -0.3, 0.3), near(0.05, 0.1, 0.1), near(0.9, 0.04, 0.06)
GAM = -2 * STDS.log()


def test_likelihood_of_the_vector():
    found = mixture.log_densities(W, MEANS, GAM, PI.log()).logsumexp(1)
    assert torch.allclose(found, near(1.892293, -1.835229, -1.434764, 1.972050, -5.349764), atol=1e-6)
    assert float(-mixture.log_likelihood(W, MEANS, GAM, PI.log())) == pytest.approx(4.755413, abs=1e-6)


def test_prior_of_the_vector():
    first, *others = mixture.hyper_prior(GAM).tolist()
    assert first == pytest.approx(-29151.331271, abs=1e-5)
    assert sum(others) == pytest.approx(-2273.374753, abs=1e-5)


def test_assignment_of_the_vector():
    assert mixture.log_densities(W, MEANS, GAM, PI.log()).argmax(1).tolist() == [0, 1, 2, 0, 2]
    value, lead = mixture.nearest(W, MEANS, GAM, PI.log())
    assert (lead > 0).tolist() == [False, True, True, False, True]
    assert value[[1, 2, 4]].tolist() == pytest.approx([-0.3, 0.3, 0.3])


def test_divergence_of_the_vector_and_merging():
    assert float(mixture.divergence(near(0.3), near(4), near(0.31), near(4.2))) == pytest.approx(0.014036, abs=1e-6)
    twice = mixture.merged(near(0, 0.3, 0.3, -0.2), near(5, 4, 4, 4), near(0.9, 0.03, 0.05, 0.02).log())
    assert twice[0].tolist() == pytest.approx([0, 0.3, -0.2])
    assert twice[2].exp().tolist() == pytest.approx([0.9, 0.08, 0.02])


def test_proportions_sum_to_one():
    shared = {"mean": near(0.1, 0.2), "log_precision": near(1, 1, 1), "rho": near(0.3, -0.5)}
    assert float(mixture.components(shared, 0.99)[2].exp().sum()) == pytest.approx(1.0)


def test_evaluation_has_a_few_values_and_training_has_all():
    trial = Trial(Subject("soft-weight-sharing", {"dense_share": 0.1, "components": 4, "zero_weight": 0.5}))
    list(trial.run(4))
    inputs = trial.batch(0)[0]
    trial.model.eval()
    trial.model(inputs)
    assert len(trial.model[3].weight.unique()) <= 5
    trial.model.train()
    trial.model(inputs)
    assert len(trial.model[3].weight.unique()) > 20


def test_the_mixture_learns_with_the_weights():
    trial = Trial(Subject("soft-weight-sharing", {"dense_share": 0.0}))
    start = {k: v.detach().clone() for k, v in trial.handle.trained.side.shared.items()}
    list(trial.run(3))
    assert all(not torch.equal(start[k], v) for k, v in trial.handle.trained.side.shared.items())
    assert math.isfinite(trial.handle.penalty)
