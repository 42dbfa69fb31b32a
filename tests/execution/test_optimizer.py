"""Present-only optimizer steps against torch's own."""

import pytest
import torch

from regrow.execution import SparsePattern, native
from regrow.execution.optimizer import adamw_step, sgd_step

pytestmark = pytest.mark.skipif(not native.available(), reason="native kernels not built")
SHAPE = (17, 23)

SGD = [
    {"lr": 0.1},
    {"lr": 0.1, "momentum": 0.9},
    {"lr": 0.1, "momentum": 0.9, "weight_decay": 5e-4, "dampening": 0.1},
    {"lr": 0.1, "momentum": 0.9, "weight_decay": 5e-4, "nesterov": True},
    {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True},
]
ADAMW = [
    {"lr": 1e-2},
    {"lr": 1e-2, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1},
    {"lr": 1e-2, "maximize": True},
]


def start():
    generator = torch.Generator().manual_seed(0)
    mask = torch.rand(SHAPE, generator=generator) < 0.3
    weight = torch.randn(SHAPE, generator=generator) * mask
    return SparsePattern(mask), weight, [torch.randn(SHAPE, generator=generator) * mask for _ in range(4)]


def torch_steps(optimizer_class, weight, grads, options):
    parameter = torch.nn.Parameter(weight.clone())
    optimizer = optimizer_class([parameter], **options)
    for grad in grads:
        parameter.grad = grad.clone()
        optimizer.step()
    return parameter.detach()


@pytest.mark.parametrize("options", SGD)
def test_sgd_is_torch_sgd(options):
    pattern, weight, grads = start()
    expected = torch_steps(torch.optim.SGD, weight, grads, options)
    velocity = torch.zeros(SHAPE)
    for step, grad in enumerate(grads):
        sgd_step(weight, grad, velocity, pattern, first_step=step == 0, **options)
    torch.testing.assert_close(weight, expected, rtol=1e-6, atol=1e-6)
    assert (weight[~pattern.mask] == 0).all()


@pytest.mark.parametrize("options", ADAMW)
def test_adamw_is_torch_adamw(options):
    pattern, weight, grads = start()
    expected = torch_steps(torch.optim.AdamW, weight, grads, options)
    first, second = torch.zeros(SHAPE), torch.zeros(SHAPE)
    for step, grad in enumerate(grads, start=1):
        adamw_step(weight, grad, first, second, pattern, step=step, **options)
    torch.testing.assert_close(weight, expected, rtol=1e-6, atol=1e-6)
    assert (first[~pattern.mask] == 0).all()


def test_missing_entries_are_not_touched():
    pattern, weight, _grads = start()
    weight[~pattern.mask] = 7.0
    sgd_step(weight, torch.ones(SHAPE), torch.ones(SHAPE), pattern, lr=0.1, momentum=0.9, weight_decay=0.1)
    assert (weight[~pattern.mask] == 7.0).all()


def test_bad_arguments_raise():
    pattern, weight, grads = start()
    with pytest.raises(ValueError, match="momentum_buffer"):
        sgd_step(weight, grads[0], None, pattern, lr=0.1, momentum=0.9)
    with pytest.raises(ValueError, match="grad must be contiguous"):
        sgd_step(weight, grads[0].t(), None, pattern, lr=0.1)
    with pytest.raises(TypeError, match="grad must be"):
        sgd_step(weight, grads[0].double(), None, pattern, lr=0.1)
    with pytest.raises(ValueError, match="step counts"):
        adamw_step(weight, grads[0], weight.clone(), weight.clone(), pattern, step=0)
