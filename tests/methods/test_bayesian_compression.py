"""Bayesian compression: divergences, units that go, and products."""

import pytest
import torch
from torch import nn

import regrow
from regrow.errors import ConfigurationError
from regrow.methods.bayesian_compression import log_alpha_of, normal_divergence
from regrow.methods.variational_dropout import divergence
from regrow.testing.trial import Subject, Trial


def near(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_divergences_of_the_vector():
    log_alpha = log_alpha_of(near(1, 0.2, 0.01), near(-9, -3, -3))
    assert torch.allclose(log_alpha, near(-9, 0.218876, 6.210240), atol=1e-4)
    assert torch.allclose(divergence(log_alpha), near(5.135815, 0.358337, 0.001013), atol=1e-5)
    assert torch.allclose(normal_divergence(near(0.5, -1), near(-9, -2)), near(4.125062, 1.067668), atol=1e-6)


def test_units_go_with_all_weights_and_unread_units_too():
    net = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    sparse = regrow.sparsify(net, optimizer, "bayesian-compression", steps=10, samples=100)
    with torch.no_grad():
        sparse.trained.side.layers[0]["z_logvar"][0, 1] = 5.0
        sparse.trained.side.layers[1]["z_logvar"][0, 2] = 5.0
    net(torch.randn(6, 5)).square().sum().backward()
    optimizer.step()
    first, second = sparse.masks["0"], sparse.masks["2"]
    assert not bool(first[:, 1].any())
    assert not bool(second[:, 2].any())
    assert not bool(first[2].any()), "nobody reads the third unit"
    assert int(first.sum()) == 3 * 4
    assert int(second.sum()) == 3 * 3


def test_shown_weights_are_the_means_product():
    trial = Trial(Subject("bayesian-compression"))
    list(trial.run(2))
    for sparse, side in zip(trial.handle.parameters, trial.handle.trained.side.layers, strict=True):
        assert torch.equal(sparse.parameter.detach(), (sparse.theta * side["z_mean"] * sparse.mask).detach())


def test_first_variances_are_bounded():
    trial = Trial(Subject("bayesian-compression"))
    for side in trial.handle.trained.side.layers:
        side["logvar"].data.fill_(0.0)
    trial.step()
    first, second, _ = (float(side["logvar"].detach().max()) for side in trial.handle.trained.side.layers)
    assert first == pytest.approx(-3.218876, abs=1e-5)
    assert second > -1


def test_thresholds_are_one_per_layer():
    net = nn.Linear(4, 2)
    optimizer = torch.optim.Adam(net.parameters())
    with pytest.raises(ConfigurationError, match="threshold has 3 values for 1 sparse layers"):
        regrow.sparsify(net, optimizer, "bayesian-compression", steps=5, samples=5, threshold=[-3.0, -3.0, -5.0])
