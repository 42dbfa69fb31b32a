"""STR: the soft threshold, its gradients, and what weight decay does to it."""

import math

import pytest
import torch
from torch import nn

import regrow
from regrow.testing.trial import Subject, Trial

W = torch.tensor([0.3, -0.05, 0.12, -0.4], dtype=torch.float64)
G = torch.tensor([1.0, 2.0, -1.0, 0.5], dtype=torch.float64)


def stepped(s):
    """One step of SGD with learning rate 1 on G * w', starting from W and s: shown weights, both gradients."""
    layer = nn.Linear(4, 1, bias=False).double()
    layer.weight.data.copy_(W)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    sparse = regrow.sparsify(layer, optimizer, "str", steps=10, s_init=s)
    shown = layer.weight.detach().clone().flatten()
    (layer.weight * G).sum().backward()
    optimizer.step()
    theta, after = sparse.parameters[0].theta.flatten(), sparse.trained.side.layers[0]["s"].item()
    return shown, W - theta, s - after, sparse


def near(values):
    return torch.tensor(values, dtype=torch.float64)


def test_vector_at_minus_two():
    shown, gradient, slope, _ = stepped(-2.0)
    assert torch.allclose(shown, near([0.180797, 0, 0.000797, -0.280797]), atol=1e-6)
    assert torch.allclose(gradient, near([1.0, 0.0, -1.0, 0.5]))
    assert float(W[0] - shown[0]) == pytest.approx(0.119203, abs=1e-6)
    assert slope == pytest.approx(0.052497, abs=1e-6)


def test_vector_at_minus_three():
    shown, _, slope, _ = stepped(-3.0)
    assert torch.allclose(shown, near([0.252574, -0.002574, 0.072574, -0.352574]), atol=1e-6)
    assert slope == pytest.approx(0.112942, abs=1e-6)


def test_masks_are_the_weights_above_the_threshold():
    *_, sparse = stepped(-2.0)
    theta = sparse.parameters[0].theta
    above = theta.abs() > torch.sigmoid(sparse.trained.side.layers[0]["s"])
    assert torch.equal(next(iter(sparse.masks.values())), above)


def test_decay_alone_pulls_s_up_as_computed():
    layer = nn.Linear(3, 2, bias=False)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    sparse = regrow.sparsify(layer, optimizer, "str", steps=300, s_init=-1000.0)
    for _ in range(300):
        optimizer.zero_grad()
        (layer.weight * 0).sum().backward()
        optimizer.step()
    expected = -1000 * math.exp(-1e-3 / (1 - 0.9) * 0.1 * 300)
    assert sparse.trained.side.layers[0]["s"].item() == pytest.approx(expected, rel=0.01)


def test_without_decay_on_s_nothing_happens_far_below_zero():
    trial = Trial(Subject("str", {"s_init": -100.0}))
    list(trial.run())
    assert trial.handle.density == 1.0


def test_finished_weights_are_the_shown_ones():
    trial = Trial(Subject("str", {"s_init": -2.5}))
    list(trial.run())
    before = [p.detach().clone() for p in trial.model.parameters()]
    assert trial.handle.density < 0.9
    trial.handle.finish()
    assert all(torch.equal(a, b) for a, b in zip(before, trial.model.parameters(), strict=True))
    assert trial.handle.finished
    density = trial.handle.density
    trial.step()
    assert trial.handle.density == density
    assert not torch.equal(before[0], next(iter(trial.model.parameters())))
