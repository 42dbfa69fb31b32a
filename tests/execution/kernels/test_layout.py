"""Layouts: CHWN maps, ordinary rows of features, channels_last; the same numbers in each."""

import pytest
import torch

from regrow import native
from regrow.execution import SparsePattern
from regrow.execution.kernels import passes
from regrow.execution.kernels.layout import (
    chwn_strides,
    empty_as,
    empty_chwn,
    in_rows,
    is_chwn,
    to_channels_last,
    to_chwn,
)

pytestmark = pytest.mark.skipif(not native.available(), reason="native kernels not built")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(16, 16, 2, 2), (19, 5, 3, 2), (1, 7, 3, 3), (130, 33, 1, 4)])
def test_channels_last_from_travelling_maps(shape, dtype):
    x = torch.randn(shape, dtype=dtype)
    y = to_channels_last(to_chwn(x))
    assert torch.equal(y, x)
    assert y.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(16, 16, 2, 2), (19, 5, 3, 2), (130, 33, 1, 4), (3, 2, 40, 1)])
def test_travelling_maps_from_channels_last(shape, dtype):
    x = torch.randn(shape, dtype=dtype)
    y = to_chwn(x.contiguous(memory_format=torch.channels_last))
    assert torch.equal(y, x)
    assert y.stride() == chwn_strides(shape)


def test_rows_are_features_as_torch_has_them():
    x = torch.randn(6, 4)
    assert in_rows(x)
    assert not in_rows(to_chwn(x))
    assert not in_rows(x[:1])  # one sample lies the same way in both
    assert not in_rows(torch.randn(6, 4, 1, 1))
    assert in_rows(empty_as((6, 9), x))
    assert is_chwn(empty_as((6, 9), to_chwn(x)))


@pytest.mark.parametrize("samples", [2, 16, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_linear_layers_give_the_same_bits_in_rows(samples, dtype):
    generator = torch.Generator().manual_seed(samples)
    weight, x, grad, bias = (
        torch.randn(shape, generator=generator, dtype=dtype)
        for shape in ((70, 230), (samples, 230), (samples, 70), (70,))
    )
    pattern = SparsePattern(torch.rand(weight.shape, generator=generator) < 0.2)
    results = []
    for arrange in (lambda t: t, to_chwn):
        dw = torch.zeros_like(weight)
        y, present = passes.forward(arrange(x), weight, bias, pattern)
        dx, db = passes.backward(arrange(x), grad, present, pattern, dw, wants_bias=True)
        results.append((y, dx, dw, db, passes.input_gradient(arrange(grad), weight, pattern, 1, 1)))
        assert in_rows(y) is in_rows(dx) is (arrange is not to_chwn)
    for rows, chwn in zip(*results, strict=True):
        assert torch.equal(rows, chwn)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_large_maps_are_tensors_like_any_other(dtype):
    """Their memory is not torch's: aligned all the same, no view of something else, changeable in place, kept as long as it is read."""
    x = torch.randn(64, 32, 16, 16, dtype=dtype, requires_grad=True)
    y = empty_chwn(x.shape, x)
    assert (y.stride(), y.dtype, y.data_ptr() % 64, y._base) == (chwn_strides(x.shape), dtype, 0, None)
    assert empty_as((1024, 512), x.new_zeros(2, 3)).stride() == (512, 1)
    first = y.fill_(3)[0]
    del y
    empty_chwn(x.shape, x).fill_(7)
    assert bool((first == 3).all())
    (to_chwn(x).relu_().double() ** 2).sum().backward()
    assert torch.equal(x.grad, (2 * x.detach().relu()))


def test_maps_that_no_memory_holds_end_in_torchs_own_error():
    with pytest.raises(RuntimeError, match="alloc"):
        empty_chwn((1 << 20, 1 << 20, 1 << 10, 1), torch.zeros(2, 2))
