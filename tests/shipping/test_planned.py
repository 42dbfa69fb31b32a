"""Programs of one layer: every geometry against torch, in both precisions, lanes of pixels and of samples."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from regrow import native
from regrow.execution.kernels.pattern import Geometry
from regrow.marks import positions
from regrow.shipping.planned import LAYER, MAX_POOL, Planned, Step, fits, samples_pay

pytestmark = pytest.mark.skipif(not native.available(), reason="native kernels not built")


POINT = Geometry()


def layer(x, weight, mask, bias, geometry=POINT, relu=False, samples_innermost=False):
    """The answer of a program of one layer."""
    where = positions(mask).to(torch.int32)
    size = (x.shape[1], *(x.shape[2:] or (1, 1)))
    sizes = [size, (weight.shape[0], *geometry.output_size(*size[1:]))]
    step = Step(LAYER, 0, 1, geometry, relu=relu, where=where, values=weight.reshape(-1)[where], bias=bias)
    return Planned(sizes, [step], x.dim() == 2, x.dtype, samples_innermost).answer(x)


@settings(max_examples=150)
@given(st.data())
def test_convolutions_agree_with_torch(data):
    pick = lambda low, high: data.draw(st.integers(low, high))  # noqa: E731
    groups, dtype = pick(1, 3), data.draw(st.sampled_from([torch.float32, torch.float64]))
    inputs, outputs = groups * pick(1, 5), groups * pick(1, 6)
    kernel, stride, dilation, padding = ((pick(1, top), pick(1, top)) for top in (4, 3, 2, 3))
    padding = (padding[0] - 1, padding[1] - 1)
    rows, cols = (max(pick(1, 40), d * (k - 1) + 1) for k, d in zip(kernel, dilation, strict=True))
    density, relu, biased, samples = (
        data.draw(st.sampled_from([0.0, 0.1, 0.5, 1.0])),
        pick(0, 1),
        pick(0, 1),
        pick(1, 20),
    )
    torch.manual_seed(pick(0, 99))
    weight = torch.randn(outputs, inputs // groups, *kernel, dtype=dtype)
    mask = torch.rand(weight.shape) < density
    bias = torch.randn(outputs, dtype=dtype) if biased else None
    x = torch.randn(samples, inputs, rows, cols, dtype=dtype)
    wanted = functional.conv2d(x, weight * mask, bias, stride, padding, dilation, groups)
    geometry = Geometry(kernel, stride, (*padding, *padding), dilation, groups)
    innermost = samples > 3
    found = layer(x, weight, mask, bias, geometry, bool(relu), innermost)
    close = 1e-4 if dtype == torch.float32 else 1e-10
    assert torch.allclose(found, wanted.relu() if relu else wanted, atol=close, rtol=close)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("size", [(3, 5), (64, 200), (700, 900)])
def test_linear_layers_agree_with_torch(size, threads):
    torch.set_num_threads(threads)
    weight, bias, x = torch.randn(size), torch.randn(size[0]), torch.randn(2, size[1])
    mask = torch.rand(size) < 0.2
    found = layer(x, weight, mask, bias, relu=True)
    assert torch.allclose(found, functional.linear(x, weight * mask, bias).relu(), atol=1e-4)


@pytest.mark.parametrize("samples", [1, 16])
def test_threads_share_the_work_without_trace(samples):
    weight, x = torch.randn(48, 32, 3, 3), torch.randn(samples, 32, 20, 20)
    everything, answers = torch.ones(weight.shape, dtype=torch.bool), []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        answers.append(layer(x, weight, everything, None, Geometry((3, 3), padding=(1, 1, 1, 1)), False, samples > 1))
    assert all(torch.equal(answers[0], other) for other in answers[1:])
    assert torch.allclose(answers[0], functional.conv2d(x, weight, padding=1), atol=1e-3)


def test_nan_passes_a_relu():
    everything = torch.ones(2, 2, dtype=torch.bool)
    found = layer(torch.tensor([[float("nan"), 1.0]]), torch.ones(2, 2), everything, None, relu=True)
    assert found.isnan().all()


def test_huge_maps_do_not_fit():
    assert fits([(64, 1000, 1000)])
    assert not fits([(64, 10_000, 10_000)])


def test_lanes_are_samples_where_maps_stay_near_or_serve_many_weights():
    small, large, few, many = (64, 32, 32), (64, 112, 112), torch.ones(600), torch.ones(20_000)
    step = lambda values: Step(LAYER, 0, 1, POINT, values=values)  # noqa: E731
    assert samples_pay([small, small], [step(few)], torch.float32)
    assert not samples_pay([large, large], [step(few)], torch.float32)
    assert samples_pay([large, large], [step(many)], torch.float32)
    assert not samples_pay([(64, 64, 64)] * 2, [step(few)], torch.float64)


@pytest.mark.parametrize("samples_innermost", [False, True])
@pytest.mark.parametrize("kernel", [(3, 3), (2, 5)])
@pytest.mark.parametrize("threads", [1, 3])
def test_maxima_of_windows_agree_with_torch(samples_innermost, kernel, threads):
    torch.set_num_threads(threads)
    x = torch.randn(3, 5, 23, 37)
    x[1, 2, 7, 9] = float("nan")
    geometry = Geometry(kernel, (2, 2), (1, 1, 1, 1))
    step = Step(MAX_POOL, 0, 1, geometry)
    found = Planned(
        [(5, 23, 37), (5, *geometry.output_size(23, 37))], [step], False, x.dtype, samples_innermost
    ).answer(x)
    assert torch.equal(found.nan_to_num(7e9), functional.max_pool2d(x, kernel, 2, 1).nan_to_num(7e9))
