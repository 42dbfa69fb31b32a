"""Layer-wise optimal brain surgeon: the algebra, and what it does to a network."""

import pytest
import torch
from torch import nn

import regrow
from regrow.errors import ConfigurationError, UnsupportedError
from regrow.methods import surgeon


def near(*values):
    return torch.tensor(values, dtype=torch.float64)


H = near(2, 0.5, 0.3, 0.5, 1, 0.2, 0.3, 0.2, 0.5).view(3, 3)
W = near(0.5, -1, 2).view(1, 3)
INVERSE = surgeon.inverse(H, 0.0)


def error(w):
    gap = (w - W).flatten()
    return float(0.5 * gap @ H @ gap)


def test_saliencies_of_the_vector():
    assert torch.allclose(INVERSE.diagonal(), near(0.601307, 1.189542, 2.287582), atol=1e-6)
    assert torch.allclose(surgeon.saliencies(W, INVERSE), near(0.207880, 0.420330, 0.874286), atol=1e-6)


@pytest.mark.parametrize("remove", [surgeon.stale, surgeon.exact, surgeon.summed])
def test_the_first_removal_of_the_vector(remove):
    new, gone = remove(W, INVERSE, 1, 3)
    assert torch.allclose(new, near(0, -0.793478, 2.217391).view(1, 3), atol=1e-6)
    assert torch.allclose((new - W)[0], near(-0.5, 0.206522, 0.217391), atol=1e-6)
    assert gone.tolist() == [[True, False, False]]


def test_the_second_removal_differs():
    stale, _ = surgeon.stale(W, INVERSE, 2, 3)
    assert torch.allclose(stale, near(0, 0, 1.999403).view(1, 3), atol=1e-6)
    assert error(stale) == pytest.approx(0.499970, abs=1e-6)
    exact, _ = surgeon.exact(W, INVERSE, 2, 3)
    assert torch.allclose(exact, near(0, 0, 1.9).view(1, 3), atol=1e-6)
    assert error(exact) == pytest.approx(0.4975, abs=1e-6)
    summed, gone = surgeon.summed(W, INVERSE, 2, 3)
    assert torch.allclose(summed, near(0, 0, 1.942666).view(1, 3), atol=1e-6)
    assert error(summed) == pytest.approx(0.497955, abs=1e-6)
    assert gone.tolist() == [[True, True, False]]
    costs, order = surgeon._sequence(W, INVERSE, 3)
    assert order[0, :2].tolist() == [0, 1]
    renewed = surgeon.inverse(H[1:, 1:], 0.0)
    first = near(-0.793478, 2.217391).view(1, 2)
    assert torch.allclose(surgeon.saliencies(first, renewed), near(0.289620, 1.130870), atol=1e-6)
    assert torch.allclose(costs[0, :2], near(0.207880, 0.289620), atol=1e-6)
    assert float(costs[0, :2].sum()) == pytest.approx(error(exact), abs=1e-6)


def test_exact_is_the_best_that_remaining_weights_can_do():
    torch.manual_seed(0)
    y = torch.randn(40, 6, dtype=torch.float64)
    h, w = y.T @ y / 40, torch.randn(3, 6, dtype=torch.float64)
    new, gone = surgeon.exact(w, surgeon.inverse(h, 1e-12), 9, 6)
    assert int(gone.sum()) == 9
    for unit in range(3):
        kept = ~gone[unit]
        wanted = w[unit, kept] + torch.linalg.solve(h[kept][:, kept], h[kept][:, gone[unit]] @ w[unit, gone[unit]])
        assert torch.allclose(new[unit, kept], wanted, atol=1e-8)


def trained(updates, **options):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 4))
    x = torch.randn(200, 6) @ torch.randn(6, 10)
    wanted = net(x).detach()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    sparse = regrow.sparsify(
        net, optimizer, "l-obs", density=0.5, steps=20, update_every=1, dense_share=0.0, updates=updates,
        calibration=lambda: [(x, None)], **options,
    )  # fmt: skip
    net(x).sum().backward()
    optimizer.step()
    return float((net(x).detach() - wanted).square().mean()), sparse


def test_compensation_keeps_outputs_near_and_counts_exact():
    torch.manual_seed(0)
    errors = {updates: trained(updates) for updates in ("stale", "exact")}
    for _, sparse in errors.values():
        assert sparse.nonzeros == sparse.budget == 112
    magnitude = _by_magnitude()
    assert errors["exact"][0] < magnitude / 3
    assert errors["stale"][0] < magnitude


def _by_magnitude():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 4))
    x = torch.randn(200, 6) @ torch.randn(6, 10)
    wanted = net(x).detach()
    with torch.no_grad():
        for layer in (net[0], net[2]):
            border = layer.weight.abs().flatten().median()
            layer.weight.masked_fill_(layer.weight.abs() <= border, 0)
    return float((net(x).detach() - wanted).square().mean())


def test_rounds_reach_the_density_in_equal_ratios():
    _, sparse = trained("stale", rounds=2, until=0.5)
    assert sparse.density == pytest.approx(0.5**0.5, abs=0.01)


def test_convolutions_are_pruned_by_their_patches():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU())
    x = torch.randn(8, 2, 5, 5)
    wanted = net(x).detach()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    sparse = regrow.sparsify(
        net, optimizer, "l-obs", density=0.9, steps=20, update_every=1, dense_share=0.0, calibration=[(x, None)]
    )
    net(x).sum().backward()
    optimizer.step()
    assert sparse.nonzeros == 49
    assert float((net(x).detach() - wanted).square().mean()) < 0.02 * float(wanted.square().mean())


def test_missing_calibration_is_named():
    net = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(ConfigurationError, match="looks at data when it prunes: pass calibration="):
        regrow.sparsify(net, optimizer, "l-obs", density=0.5, steps=10)


@pytest.mark.parametrize(
    "layer", [nn.Conv1d(2, 4, 3), nn.Conv2d(2, 4, 3, groups=2), nn.Conv2d(2, 4, 3, padding="same")]
)
def test_layers_without_moments_are_refused_at_the_start(layer):
    net = nn.Sequential(layer, nn.ReLU())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    before = layer.weight.detach().clone()
    with pytest.raises(
        UnsupportedError, match=r"inputs of 0, a Conv.d, have no second moment .* scope=Scope\(dense=\('0',\)\)"
    ):
        regrow.sparsify(net, optimizer, "l-obs", density=0.5, steps=10, calibration=[(None, None)])
    assert torch.equal(layer.weight, before)
    regrow.sparsify(net, optimizer, "static", density=0.5)  # nothing was left behind


def test_short_runs_have_updates_enough():
    net = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    sparse = regrow.sparsify(
        net, optimizer, "l-obs", density=0.5, steps=60, steps_per_epoch=60, calibration=[(None, None)]
    )
    assert sparse.settings.clock.every == 6
