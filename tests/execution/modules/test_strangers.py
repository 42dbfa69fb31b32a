"""Weights that somebody put in a parameter's place: computed with as they are, not with masks that they do not fit."""

import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn.utils import parametrize

import regrow
from regrow import native
from regrow.errors import StateError

pytestmark = pytest.mark.skipif(not native.available(), reason="native kernels not built")

NETS = {
    "stack": (lambda: nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 4)), (5, 12)),
    "linear": (lambda: nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 4)), (5, 12)),
    "conv": (lambda: nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.Tanh(), nn.Conv2d(6, 4, 1)), (5, 3, 7, 6)),
}


class Twin(nn.Module):
    """Twice the weight."""

    def forward(self, weight):
        return 2 * weight


@pytest.fixture(params=NETS)
def sparse(request):
    make, shape = NETS[request.param]
    torch.manual_seed(0)
    plain = make()
    model = copy.deepcopy(plain)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    handle = regrow.sparsify(model, optimizer, "static", density=0.3, execution="sparse")
    x = torch.randn(shape)
    assert torch.allclose(model(x), functional_call(plain, dict(model.named_parameters()), (x,)), atol=1e-6)
    return plain, model, handle, x


def test_functional_calls_with_other_weights(sparse):
    plain, model, _, x = sparse
    other = {name: torch.randn_like(p, requires_grad=True) for name, p in plain.named_parameters()}
    got, expected = functional_call(model, other, (x,)), functional_call(plain, other, (x,))
    assert torch.allclose(got, expected, atol=1e-6)
    for one, two in zip(
        *(torch.autograd.grad(y.square().sum(), list(other.values())) for y in (got, expected)), strict=True
    ):
        assert torch.allclose(one, two, atol=1e-4)


def test_functional_calls_with_weights_that_fit_run_on_kernels(sparse):
    plain, model, handle, x = sparse
    other = {name: torch.randn_like(p) for name, p in plain.named_parameters()}
    other |= {f"{name}.weight": other[f"{name}.weight"] * mask for name, mask in handle.masks.items()}
    other["0.weight"].requires_grad_()
    y = functional_call(model, other, (x,))
    assert torch.allclose(y, functional_call(plain, other, (x,)), atol=1e-6)
    (grad,) = torch.autograd.grad(y.sum(), other["0.weight"])
    assert not grad[~handle.masks["0"]].any(), "kernels give gradients of present weights alone"


def test_assigned_states(sparse):
    plain, model, _, x = sparse
    model.load_state_dict(plain.state_dict(), assign=True)
    assert torch.allclose(model(x), plain(x), atol=1e-6)


def test_assigned_parameters(sparse):
    plain, model, _, x = sparse
    model[0].weight = nn.Parameter(plain[0].weight.detach().clone())
    expected = functional_call(plain, dict(model.named_parameters()), (x,))
    assert torch.allclose(model(x), expected, atol=1e-6)


def test_parametrizations(sparse):
    plain, model, _, x = sparse
    named = {name: p.detach().clone() for name, p in model.named_parameters()}
    parametrize.register_parametrization(model[0], "weight", Twin())
    assert torch.allclose(
        model(x), functional_call(plain, {**named, "0.weight": 2 * named["0.weight"]}, (x,)), atol=1e-6
    )


@pytest.mark.parametrize("kind", NETS)
def test_compact_weights_take_present_entries_alone(kind):
    make, shape = NETS[kind]
    torch.manual_seed(0)
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    regrow.sparsify(model, optimizer, "static", density=0.3, execution="sparse", storage="compact")
    x, dense = torch.randn(shape), {name: p.detach() for name, p in make().named_parameters()}
    with pytest.raises(StateError, match=r"weight of 0\S* has shape .* stored compact"):
        functional_call(model, dense, (x,))
    doubled = {name: 2 * p.detach() for name, p in model.named_parameters() if name == "2.weight"}
    bias = model[2].bias.detach().reshape(1, -1, *[1] * (len(shape) - 2))
    assert torch.allclose(functional_call(model, doubled, (x,)) - bias, 2 * (model(x) - bias), atol=1e-5)
