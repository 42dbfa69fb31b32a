"""First derivatives only, and an error for the second ones."""

import copy

import pytest
import torch
from torch import nn

import regrow
from regrow import native
from regrow.execution.kernels.pattern import SparsePattern

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


CURVED = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 6), nn.Tanh(), nn.Linear(6, 2))
TWICE = r"first derivatives only: call handle\.densify\(\)"


def curved():
    torch.manual_seed(0)
    model = copy.deepcopy(CURVED).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model, regrow.sparsify(model, optimizer, "static", density=0.6, execution="sparse"), optimizer


def test_a_hessian_is_refused_not_zero():
    model, handle, _optimizer = curved()
    x = torch.randn(12, dtype=torch.float64)
    with pytest.raises(RuntimeError, match=TWICE):
        torch.autograd.functional.hessian(lambda x: model(x[None]).sum(), x)
    handle.densify()
    assert torch.autograd.functional.hessian(lambda x: model(x[None]).sum(), x).any()


@pytest.mark.parametrize("first", ["input", "weight"])
@pytest.mark.parametrize("second", ["input", "weight"])
def test_second_derivatives_by_anything_are_refused(first, second):
    model, _handle, _optimizer = curved()
    x = torch.randn(3, 12, dtype=torch.float64, requires_grad=True)
    by = {"input": x, "weight": model[0].weight}
    (slope,) = torch.autograd.grad(model(x).sum(), by[first], create_graph=True)
    with pytest.raises(RuntimeError, match=TWICE):
        torch.autograd.grad(slope.square().sum(), by[second], allow_unused=True)


def test_a_batch_of_gradients_is_refused():
    model, _handle, _optimizer = curved()
    x = torch.randn(3, 12, dtype=torch.float64)
    with pytest.raises(RuntimeError, match=r"one gradient at a time: call handle\.densify\(\)"):
        torch.autograd.functional.jacobian(model, x, vectorize=True)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # torch's own use of it
def test_forward_mode_computes_dense():
    model, handle, _optimizer = curved()
    x, direction = torch.randn(2, 3, 12, dtype=torch.float64)

    def tangent():
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, direction)
            return torch.autograd.forward_ad.unpack_dual(model(dual)).tangent

    found = tangent()
    handle.densify()
    torch.testing.assert_close(found, tangent())


def test_checkpointed_layers_may_keep_a_graph_of_gradients():
    model, _handle, _optimizer = curved()
    x = torch.randn(3, 12, dtype=torch.float64, requires_grad=True)
    out = torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False)
    (found,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    torch.testing.assert_close(found.detach(), torch.autograd.grad(model(x).sum(), x)[0])


def test_operators_of_gradients_have_none_themselves():
    pattern = SparsePattern(torch.rand(4, 6) < 0.7)
    x, weight = torch.randn(3, 6, requires_grad=True), torch.randn(4, 6, requires_grad=True)
    y = torch.ops.regrow.sparse_forward(x, weight, None, *pattern.operands())
    slopes = torch.autograd.grad(y.square().sum(), (x, weight), create_graph=True)
    for slope in slopes:
        with pytest.raises(RuntimeError, match=TWICE):
            torch.autograd.grad(slope.sum(), x, retain_graph=True, allow_unused=True)
