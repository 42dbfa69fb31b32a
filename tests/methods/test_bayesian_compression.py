"""Bayesian compression: divergences, units that go, and products."""

import pytest
import torch
from torch import nn

import regrow
from regrow.errors import ConfigurationError
from regrow.methods.horseshoe import HORSESHOE, gamma_divergence, inverse_gamma_divergence
from regrow.methods.scales import log_alpha_of, normal_divergence
from regrow.methods.variational_dropout import divergence
from regrow.testing.trial import Subject, Trial


def near(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_divergences_of_the_vector():
    log_alpha = log_alpha_of(near(1, 0.2, 0.01), near(-9, -3, -3))
    assert torch.allclose(log_alpha, near(-9, 0.218876, 6.210240), atol=1e-4)
    assert torch.allclose(divergence(log_alpha), near(5.135815, 0.358337, 0.001013), atol=1e-5)
    assert torch.allclose(normal_divergence(near(0.5, -1), near(-9, -2)), near(4.125062, 1.067668), atol=1e-6)


def test_divergences_of_the_horseshoe():
    mean, logvar = near(-1), near(-2)
    assert float(gamma_divergence(mean, logvar, 1.0)) == pytest.approx(1.047061, abs=1e-6)
    assert float(gamma_divergence(mean, logvar, 0.09)) == pytest.approx(3.823171, abs=1e-6)
    assert float(inverse_gamma_divergence(mean, logvar)) == pytest.approx(2.562014, abs=1e-6)


def test_scales_of_the_horseshoe_are_log_normal():
    torch.manual_seed(0)
    names = ("sa", "sb", "a", "b")
    side = {f"{n}_mean": near(m) for n, m in zip(names, (-1.0, 0.4, 0.2, 1.0), strict=True)}
    side |= {f"{n}_logvar": near(v) for n, v in zip(names, (-2.0, -1.0, -1.5, -0.5), strict=True)}
    mean, std = HORSESHOE.gauss(side)
    drawn = HORSESHOE.of(mean + std * torch.randn(200_000, dtype=torch.float64))
    product = torch.stack(
        [(side[f"{n}_mean"] + (side[f"{n}_logvar"] / 2).exp() * torch.randn(200_000)).exp() for n in names]
    )
    assert float(drawn.mean()) == pytest.approx(float(HORSESHOE.mean(side)), rel=0.01)
    assert float(product.prod(0).sqrt().mean()) == pytest.approx(float(HORSESHOE.mean(side)), rel=0.01)
    counts, edges = drawn.log().exp().histogram(bins=200, range=(0.0, 4.0))
    highest = float(edges[int(counts.argmax())])
    assert highest == pytest.approx(float((-HORSESHOE.noise(side)).exp()), abs=0.1)


def test_the_horseshoe_starts_with_scales_of_one_and_drops_units_of_low_mode():
    net = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    before = net[0].weight.detach().clone()
    sparse = regrow.sparsify(net, optimizer, "bayesian-compression", steps=10, samples=100, prior="horseshoe")
    side = sparse.trained.side.layers
    assert torch.allclose(HORSESHOE.mean(side[0]), torch.ones(1, 5), atol=0.05)
    assert torch.allclose(net[0].weight, before, rtol=0.05)
    with torch.no_grad():
        side[0]["b_mean"][0, 1] -= 8.0
        side[1]["b_logvar"][0, 2] = 3.0
    net(torch.randn(6, 5)).square().sum().backward()
    optimizer.step()
    first, second = sparse.masks["0"], sparse.masks["2"]
    assert not bool(first[:, 1].any())
    assert not bool(second[:, 2].any())
    assert (int(first.sum()), int(second.sum())) == (3 * 4, 3 * 3)


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
