"""Variational dropout: divergence, local reparametrisation, masks."""

import pytest
import torch
from torch import nn

import regrow
from regrow.errors import UnsupportedError
from regrow.methods.variational_dropout import divergence, log_alpha_of, product
from regrow.testing.trial import Subject, Trial
from regrow.weighting import Product, Trained


def near(*values):
    return torch.tensor(values, dtype=torch.float64)


THETA = near(0.5, -0.2, 0.1, 0.3, -0.4, 0.05).view(3, 2).T.contiguous()
LOG_SIGMA2 = near(-4, -1, -3, -5, -2, -2.5).view(3, 2).T.contiguous()


def test_divergence_and_its_slope():
    log_alpha = near(-8, -4, -2, -1, 0, 1, 2, 3, 4, 8).requires_grad_()
    values = near(4.635899, 2.634208, 1.540533, 0.913872, 0.431239, 0.177970, 0.068417, 0.025420, 0.009330, 0.000168)
    found = divergence(log_alpha)
    assert torch.allclose(found, values, atol=1e-6)
    (slope,) = torch.autograd.grad(found.sum(), log_alpha)
    assert torch.allclose(slope[[2, 4, 7]], near(-0.617465, -0.359128, -0.025385), atol=1e-6)


def test_noise_over_signal_of_the_vector():
    found = log_alpha_of(THETA, LOG_SIGMA2)
    wanted = near(-2.613706, 2.218876, 1.605169, -2.592055, -0.167419, 3.491461).view(3, 2).T
    assert torch.allclose(found, wanted, atol=1e-5)
    assert ((found >= 3).nonzero()).tolist() == [[1, 2]]
    assert float(divergence(found).sum()) == pytest.approx(4.459830, abs=1e-5)


def test_mean_and_spread_of_the_vector():
    class Sparse:
        module = nn.Linear(3, 2)

    x = near(1, 2, -1).view(1, 3)
    view = Trained(Sparse, 0, THETA, torch.ones_like(THETA, dtype=torch.bool), {"log_sigma2": LOG_SIGMA2})

    def out(noise):
        return product(Product(x, None, view, nn.functional.linear, lambda like: torch.full_like(like, noise)))

    assert torch.allclose(out(0.0), near(1.1, 0.35).view(1, 2), atol=1e-6)
    assert torch.allclose(out(1.0) - out(0.0), near(0.593969, 0.690591).view(1, 2), atol=1e-6)


def test_side_gradients_accumulate_like_the_weights_own():
    """Two halves of a batch, noise apart, give the sum; zero_grad without a step throws side gradients away too."""
    trial = Trial(Subject("variational-dropout"))
    twin = Trial(Subject("variational-dropout"))
    product = trial.handle.trained._products[1]
    trial.backward()
    whole = {k: v.clone() for k, v in product._sums.items()}
    twin.loss(*twin.batch(7)).backward()
    twin.optimizer.zero_grad()
    twin.handle.trained._products[1].calls = 0
    for other in twin.handle.trained._products:
        other.calls = 0
    twin.backward()
    again = twin.handle.trained._products[1]._sums
    assert all(torch.equal(whole[k], again[k]) for k in whole)
    before = trial.model[3].weight.grad.clone()
    for other in trial.handle.trained._products:
        other.calls = 0
    trial.loss(*trial.batch(trial.done)).backward()
    assert torch.allclose(trial.model[3].weight.grad, 2 * before)
    assert torch.allclose(product._sums["log_sigma2"], 2 * whole["log_sigma2"])


def test_clipping_reaches_side_gradients():
    trial = Trial(Subject("variational-dropout"))
    trial.backward()
    product = trial.handle.trained._products[1]
    before = product._sums["log_sigma2"].clone()
    trial.model[3].weight.grad.mul_(0.25)
    assert torch.allclose(product.collect(None)["log_sigma2"], before * 0.25)


def test_training_is_noisy_and_evaluation_is_not():
    trial = Trial(Subject("variational-dropout", {"log_sigma2": -1.0}))
    inputs = trial.batch(0)[0]
    assert not torch.equal(trial.model(inputs), trial.model(inputs))
    trial.model.eval()
    assert torch.equal(trial.model(inputs), trial.model(inputs))


def test_weights_that_drown_in_noise_go():
    trial = Trial(Subject("variational-dropout"), optimizer=lambda p: torch.optim.SGD(p, lr=1e-6))
    side = trial.handle.trained.side.layers[1]["log_sigma2"]
    with torch.no_grad():
        side[0].fill_(5.0)
    list(trial.run(2))
    assert not bool(trial.handle.parameters[1].mask[0].any())
    assert bool(trial.handle.parameters[1].mask[1].all())


def test_finished_models_are_plain_and_can_be_detached():
    trial = Trial(Subject("variational-dropout"))
    list(trial.run(3))
    assert type(trial.model[3]).__name__ == "NoisyLinear"
    trial.handle.finish()
    assert type(trial.model[3]) is nn.Linear
    other = Trial(Subject("variational-dropout"))
    other.handle.detach()
    assert type(other.model[0]) is nn.Conv2d


def test_layers_without_an_exchangeable_product_are_named():
    net = nn.Sequential(nn.Linear(4, 4), nn.Bilinear(4, 4, 2))
    optimizer = torch.optim.Adam(net.parameters())
    with pytest.raises(UnsupportedError, match=r"1 is a Bilinear: keep it dense with scope="):
        regrow.sparsify(net, optimizer, "variational-dropout", steps=10, samples=10)
