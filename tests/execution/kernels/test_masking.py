"""Masking in place, natively and by torch."""

import pytest
import torch
from torch import nn

from regrow import native
from regrow.execution.kernels.masking import mask_


@pytest.mark.parametrize("built", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 1000, 300_001])
def test_missing_weights_become_zero_and_others_stay(size, dtype, built, monkeypatch):
    if not built:
        monkeypatch.setattr(native, "library_path", lambda: None)
    generator = torch.Generator().manual_seed(size)
    before, present = torch.randn(size, generator=generator).to(dtype), torch.rand(size, generator=generator) < 0.3
    before.masked_fill_(~present & (torch.arange(size) % 2 == 0), float("inf"))
    after = before.clone()
    mask_(after, present.view(torch.uint8))
    assert torch.equal(after[present], before[present])
    assert not after[~present].any()


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("mask_order", [torch.contiguous_format, torch.channels_last])
def test_kernels_in_either_memory_format(order, mask_order):
    before, present = torch.randn(4, 3, 5, 2), torch.rand(4, 3, 5, 2) < 0.5
    after = before.clone(memory_format=torch.contiguous_format).contiguous(memory_format=order)
    mask_(after, present.contiguous(memory_format=mask_order).view(torch.uint8))
    assert torch.equal(after, before * present)


def test_other_strides_and_parameters():
    before, present = torch.randn(6, 5), torch.rand(6, 5) < 0.5
    turned = before.clone().t()
    mask_(turned, present.t().view(torch.uint8))
    assert torch.equal(turned, (before * present).t())
    parameter = nn.Parameter(before.clone())
    version = parameter._version
    mask_(parameter, present.view(torch.uint8))
    assert torch.equal(parameter, before * present)
    assert parameter._version == version
