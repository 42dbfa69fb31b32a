"""Optimal brain damage: curvatures of the vector, and what goes."""

import pytest
import torch
from torch import nn

import regrow
from regrow.calibration import curvature
from regrow.errors import UnsupportedError
from regrow.scope import choose


def near(*values):
    return torch.tensor(values, dtype=torch.float64)


def network():
    net = nn.Sequential(nn.Linear(2, 3, bias=False), nn.ReLU(), nn.Linear(3, 2, bias=False)).double()
    net[0].weight.data = near(0.5, -0.25, 0.3, 0.8, -1, 0.2).view(3, 2)
    net[2].weight.data = near(1, -1, 0.7, 0.5, 2, 0.3).view(2, 3)
    return net


DATA = [(near(1, 1).view(1, 2), torch.tensor([1]))]


def found(kind, net=None, data=DATA):
    net = network() if net is None else net
    return curvature(kind, net, choose(net)[0], data, lambda tensor: tensor)


def test_the_sweep_of_the_vector():
    first, second = found("obd")
    assert torch.allclose(first, near(0.048135, 0.048135, 0.192540, 0.192540, 0, 0).view(3, 2), atol=1e-6)
    assert torch.allclose(second, near(0.002407, 0.046595, 0, 0.002407, 0.046595, 0).view(2, 3), atol=1e-6)
    net = network()
    logits = net(DATA[0][0]).detach()
    assert torch.allclose(logits.softmax(1), near(0.040117, 0.959883), atol=1e-6)
    assert float(nn.functional.cross_entropy(logits, DATA[0][1])) == pytest.approx(0.040944, abs=1e-6)
    saliency = 0.5 * first * net[0].weight.detach().square()
    assert torch.allclose(saliency.flatten(), near(0.006017, 0.001504, 0.008664, 0.061613, 0, 0), atol=1e-6)
    other = 0.5 * second * net[2].weight.detach().square()
    assert torch.allclose(other.flatten(), near(0.001203, 0.023297, 0, 0.000301, 0.093189, 0), atol=1e-6)


def test_the_empirical_fisher_of_the_vector():
    first, second = found("empirical")
    assert torch.allclose(first.flatten(), near(0.000402, 0.000402, 0.014485, 0.014485, 0, 0), atol=1e-6)
    assert torch.allclose(second[0], near(0.000101, 0.001947, 0), atol=1e-6)


def test_the_expected_fisher_is_the_exact_diagonal():
    """Squared gradients under both labels, weighed by their probability: what sampled labels converge to."""
    net = network()
    p = net(DATA[0][0]).softmax(1).flatten().tolist()
    parts = [found("empirical", net, [(DATA[0][0], torch.tensor([label]))]) for label in (0, 1)]
    first = p[0] * parts[0][0] + p[1] * parts[1][0]
    assert torch.allclose(first.flatten(), near(0.009627, 0.009627, 0.346572, 0.346572, 0, 0), atol=1e-6)

    def loss(weight):
        logits = nn.functional.linear(nn.functional.linear(DATA[0][0], weight).relu(), net[2].weight.detach())
        return nn.functional.cross_entropy(logits, DATA[0][1])

    hessian = torch.autograd.functional.hessian(loss, net[0].weight.detach()).view(6, 6).diagonal()
    assert torch.allclose(first.flatten(), hessian, atol=1e-9)


def test_sampled_labels_converge_to_it():
    batches = [(DATA[0][0].expand(500, 2), torch.zeros(500, dtype=torch.long))]
    first, _ = found("fisher", data=batches)
    assert torch.allclose(first[:2].flatten(), near(0.009627, 0.009627, 0.346572, 0.346572), rtol=0.6)


def test_convolutions_and_pooling_are_swept():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 3)).double()
    x, labels = torch.randn(4, 1, 6, 6, dtype=torch.float64), torch.tensor([0, 1, 2, 0])
    first, last = found("obd", net, [(x, labels)])
    hidden = net[:4](x).detach()
    p = net(x).detach().softmax(1)
    assert torch.allclose(last, (p * (1 - p)).T @ hidden.square() / 4)
    assert first.shape == (2, 1, 3, 3)
    assert bool((first >= 0).all())
    net(x).sum().backward()  # the model computes as before


def test_means_are_swept():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 6, bias=False), nn.AvgPool1d(3), nn.Linear(2, 3, bias=False)).double()
    x = torch.randn(1, 6, dtype=torch.float64)
    first, _ = found("obd", net, [(x, torch.tensor([0]))])
    p = net(x).detach().softmax(1)
    below = ((p * (1 - p)) @ net[2].weight.detach().square()).repeat_interleave(3, dim=1) / 9
    assert torch.allclose(first, below.T @ x.square())
    padded = nn.Sequential(nn.Linear(6, 6), nn.AvgPool1d(3, padding=1), nn.Linear(2, 3)).double()
    with pytest.raises(UnsupportedError, match="does not know AvgPool1d"):
        found("obd", padded, [(x, torch.tensor([0]))])


def test_smooth_activations_are_swept_by_the_square_of_their_slope():
    net = nn.Sequential(nn.Linear(2, 3, bias=False), nn.Tanh(), nn.Linear(3, 2, bias=False)).double()
    first, _ = found("obd", net)
    x, hidden = DATA[0][0], net[0](DATA[0][0]).detach()
    p = net(x).detach().softmax(1)
    c = ((p * (1 - p)) @ net[2].weight.detach().square()) * (1 - hidden.tanh().square()).square()
    assert torch.allclose(first, c.T @ x.square())


def test_a_part_that_the_sweep_does_not_know_is_named():
    net = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3), nn.Linear(3, 2)).double()
    with pytest.raises(UnsupportedError, match=r"does not know LayerNorm \(1\): say curvature='fisher'"):
        found("obd", net)
    assert len(found("fisher", net)) == 2


def test_the_least_salient_weights_of_all_layers_go():
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    sparse = regrow.sparsify(
        net, optimizer, "obd", density=0.5, steps=20, update_every=1, dense_share=0.0, rounds=1, calibration=DATA
    )
    net(DATA[0][0]).sum().backward()
    optimizer.step()
    assert sparse.masks["0"].tolist() == [[True, True], [True, True], [False, False]]
    assert sparse.masks["2"].tolist() == [[False, True, False], [False, True, False]]


def test_a_network_that_cannot_be_swept_is_refused_at_the_start():
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(UnsupportedError, match=r"does not know BatchNorm1d \(1\): say curvature='fisher'"):
        regrow.sparsify(net, optimizer, "obd", density=0.5, steps=20, calibration=DATA)
    sparse = regrow.sparsify(net, optimizer, "obd", density=0.5, steps=20, calibration=DATA, curvature="fisher")
    assert sparse.settings.clock.every == 1
