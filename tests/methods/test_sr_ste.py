"""SR-STE: n of m along the input channels, straight-through gradients, decay of masked weights."""

import math

import pytest
import torch
from torch import nn

import regrow
from regrow.errors import ConfigurationError
from tests.support.manual import Manual


def groups_hold(rows, mask, n, m):
    """Every group of m keeps its n largest; a shorter last one ceil(n r / m)."""
    for row, kept in zip(rows.abs(), mask, strict=True):
        for start in range(0, len(row), m):
            values, chosen = row[start : start + m], kept[start : start + m]
            count = math.ceil(n * len(values) / m)
            assert int(chosen.count_nonzero()) == count
            best = sorted(range(len(values)), key=lambda i: (-float(values[i]), i))[:count]
            assert chosen.nonzero().squeeze(1).tolist() == sorted(best)


@pytest.mark.parametrize(("n", "m"), [(2, 4), (1, 4), (4, 8), (1, 3), (2, 2)])
def test_linear_convolution_and_transposed_convolution_keep_n_of_m_input_channels(n, m):
    model = nn.Sequential(nn.Conv2d(10, 4, 3), nn.ConvTranspose2d(6, 5, 2), nn.Linear(11, 7))
    theta = [layer.weight.detach().clone() for layer in model]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = regrow.sparsify(model, optimizer, "sr-ste", n=n, m=m)
    conv, transposed, linear = handle.masks.values()
    groups_hold(theta[2], linear, n, m)
    groups_hold(theta[0].movedim(1, -1).reshape(-1, 10), conv.movedim(1, -1).reshape(-1, 10), n, m)
    groups_hold(theta[1].movedim(0, -1).reshape(-1, 6), transposed.movedim(0, -1).reshape(-1, 6), n, m)
    assert handle.budget == handle.nonzeros


def test_gradients_go_straight_through_and_masked_weights_decay():
    run = Manual("sr-ste", [[[4.0, 3.0, -2.0, 1.0]]], options={"decay": 0.5},
                 optimizer=lambda p: torch.optim.SGD(p, lr=0.1))  # fmt: skip
    assert run.weights[0].tolist() == [[4.0, 3.0, 0.0, 0.0]]
    run.step([[1.0, 1.0, 20.0, 1.0]])
    theta = torch.tensor([[4.0 - 0.1, 3.0 - 0.1, -2.0 - 0.1 * (20.0 - 1.0), 1.0 - 0.1 * (1.0 + 0.5)]])
    torch.testing.assert_close(run.handle.parameters[0].theta, theta)
    assert run.masks[0].tolist() == [[True, False, True, False]]
    assert torch.equal(run.weights[0], run.handle.parameters[0].theta * run.masks[0])


def test_density_follows_from_n_and_m():
    with pytest.raises(ConfigurationError, match=r"density 0\.5 by construction"):
        Manual("sr-ste", [torch.rand(4, 8)], density=0.2)
    with pytest.raises(ConfigurationError, match="0 < n <= m"):
        Manual("sr-ste", [torch.rand(4, 8)], options={"n": 5, "m": 4})
    assert Manual("sr-ste", [torch.rand(4, 8)], density=0.5).counts == [16]
