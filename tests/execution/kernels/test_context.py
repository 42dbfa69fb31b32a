"""First derivatives only, and an error for the second ones."""

import pytest
import torch
from torch import nn

import regrow
from regrow.execution.kernels import native

pytestmark = pytest.mark.skipif(not native.available(), reason="native kernels not built")

NETWORKS = {
    "one layer": lambda: nn.Sequential(nn.Linear(12, 6)),
    "a stack": lambda: nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 6)),
    "maps": lambda: nn.Sequential(
        nn.Unflatten(1, (3, 2, 2)), nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
    ),
}


def sparse(name):
    torch.manual_seed(0)
    model = NETWORKS[name]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return (
        model,
        regrow.sparsify(model, optimizer, density=0.4, steps=10, update_every=5, execution="sparse"),
        optimizer,
    )


@pytest.mark.parametrize("name", NETWORKS)
def test_a_penalty_on_the_gradient_of_the_input_is_refused_and_works_dense(name):
    model, handle, _optimizer = sparse(name)
    x = torch.randn(8, 12, requires_grad=True)
    (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match=r"first derivatives only: call handle\.densify\(\)"):
        (slope.norm(dim=1) - 1).square().mean().backward()
    handle.densify()
    (dense,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    torch.testing.assert_close(slope.detach(), dense.detach())
    (dense.norm(dim=1) - 1).square().mean().backward()


def test_a_graph_that_nobody_differentiates_does_no_harm():
    model, _handle, _optimizer = sparse("a stack")
    x = torch.randn(8, 12, requires_grad=True)
    loss = model(x).square().sum()
    (with_graph,) = torch.autograd.grad(loss, x, create_graph=True)
    (without,) = torch.autograd.grad(model(x).square().sum(), x)
    assert torch.equal(with_graph, without)
