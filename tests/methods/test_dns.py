"""Dynamic network surgery: thresholds, hysteresis, splicing."""

import pytest
import torch
from torch import nn

import regrow
from regrow.errors import ConfigurationError
from regrow.methods.dns import operate
from regrow.testing.trial import Subject, Trial

THETA = torch.tensor([0.05, -0.4, 0.22, 0.9, -0.31, 0.6], dtype=torch.float64)
LATER = torch.tensor([0.45, -0.31, 0.29, 0.9, -0.25, 0.2], dtype=torch.float64)


def test_border_and_masks_of_the_vector():
    layer = nn.Linear(6, 1, bias=False).double()
    layer.weight.data.copy_(THETA)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.0)
    sparse = regrow.sparsify(layer, optimizer, "dns", steps=100, c=-0.5, dense_share=0.0, gamma=0.0)

    def step():
        optimizer.zero_grad()
        layer(torch.ones(1, 6, dtype=torch.float64)).sum().backward()
        optimizer.step()
        return next(iter(sparse.masks.values())).int().flatten().tolist()

    assert (float(THETA.abs().mean()), float(THETA.abs().std(correction=0))) == pytest.approx(
        (0.413333, 0.274449), abs=1e-6
    )
    assert step() == [0, 1, 0, 1, 1, 1]
    assert float(sparse.network.layer_memory[0]["border"]) == pytest.approx(0.276109, abs=1e-6)
    sparse.parameters[0].theta.copy_(LATER)
    assert step() == [1, 1, 0, 1, 1, 0]
    assert float(sparse.network.layer_memory[0]["border"]) == pytest.approx(0.276109, abs=1e-6), "b is found once"


def test_limits_of_the_vector():
    border, both = torch.tensor(0.276109), torch.tensor([True, True])
    assert operate(torch.tensor([0.248498 - 1e-6, 0.248498 + 1e-6]), both, border).tolist() == [False, True]
    assert operate(torch.tensor([0.303720 - 1e-6, 0.303720 + 1e-6]), ~both, border).tolist() == [False, True]


def test_weights_between_the_limits_keep_their_state():
    border = torch.tensor(1.0)
    theta = torch.tensor([0.95, 0.95, 0.85, 1.15])
    mask = torch.tensor([True, False, True, False])
    assert operate(theta, mask, border).tolist() == [True, False, False, True]


def test_pruned_weights_go_on_training():
    trial = Trial(Subject("dns", {"c": 0.5, "dense_share": 0.0}))
    list(trial.run(2))
    sparse = trial.handle.parameters[1]
    missing, before = ~sparse.mask.clone(), sparse.theta.clone()
    assert bool(missing.any())
    trial.step()
    assert bool((sparse.theta != before)[missing].any())


def test_dense_first_then_surgery_then_rest():
    trial = Trial(Subject("dns", {"c": 0.5, "dense_share": 0.5, "stop": 0.7, "gamma": 0.0}))
    densities = [state.handle.density for state in trial.run()]
    assert densities[:5] == [1.0] * 5
    assert densities[6] < 1.0
    assert len(set(densities[8:])) == 1


def test_a_start_density_solves_the_threshold():
    trial = Trial(Subject("dns", {"start_density": 0.25, "dense_share": 0.0, "gamma": 0.0}))
    list(trial.run(2))
    for sparse, memory in zip(trial.handle.parameters, trial.handle.network.layer_memory, strict=True):
        share = float((sparse.theta.abs() > memory["border"]).float().mean())
        assert share == pytest.approx(0.25, abs=0.05)


def test_one_c_per_layer_or_an_error():
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    before = net[0].weight.detach().clone()
    with pytest.raises(ConfigurationError, match="c has 3 values for 2 sparse layers"):
        regrow.sparsify(net, optimizer, "dns", steps=10, c=[1.0, 2.0, 3.0])
    assert torch.equal(net[0].weight, before)
    regrow.sparsify(net, optimizer, "dns", steps=10, c=[1.0, 2.0])
