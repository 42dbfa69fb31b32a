"""Dense: plain training, bit for bit."""

import copy

import pytest
import torch
from torch import nn

import regrow
from regrow.errors import ConfigurationError


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3),
        lambda p: torch.optim.AdamW(p, lr=0.01),
    ],
)
def test_dense_training_is_plain_training(make):
    plain = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    twin = copy.deepcopy(plain)
    optimizers = [make(plain.parameters()), make(twin.parameters())]
    handle = regrow.sparsify(twin, optimizers[1], "dense")
    assert handle.density == 1.0
    for _ in range(10):
        inputs, targets = torch.randn(5, 6), torch.randn(5, 3)
        for model, optimizer in zip((plain, twin), optimizers, strict=True):
            optimizer.zero_grad()
            (model(inputs) - targets).square().mean().backward()
            optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), twin.parameters(), strict=True))


def test_a_density_below_one_is_refused():
    model = nn.Linear(4, 4)
    with pytest.raises(ConfigurationError, match="density 1 by construction"):
        regrow.sparsify(model, torch.optim.SGD(model.parameters(), lr=0.1), "dense", density=0.5)
