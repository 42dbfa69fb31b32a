"""Zeros at missing weights: what masked execution does to every gradient and every weight in every step."""

from __future__ import annotations

from torch import Tensor, nn

from regrow.execution import native


def mask_(tensor: Tensor, present: Tensor) -> None:
    """Zero `tensor` in place where `present` (uint8, of its shape) is zero; natively in half of torch's time where that is possible.

    Like writing through `.data`, it does not count as a change of the tensor for autograd.
    """
    plain = type(tensor) in (Tensor, nn.Parameter) and tensor.is_cpu and tensor.dtype in native.SUFFIX
    if plain and tensor.is_contiguous() and present.is_contiguous() and native.available():
        native.call("keep_present", tensor.dtype, tensor, present, tensor.numel())
    else:
        tensor.data.mul_(present)
