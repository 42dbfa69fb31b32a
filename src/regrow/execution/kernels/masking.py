"""Zeros at missing weights: what masked execution does to every gradient and every weight in every step."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regrow import native


def mask_(tensor: Tensor, present: Tensor) -> None:
    """Zero `tensor` in place where `present` (uint8, of its shape) is zero; natively in half of torch's time where that is possible.

    Like writing through `.data`, it does not count as a change of the tensor for autograd.
    """
    plain = type(tensor) in (Tensor, nn.Parameter) and tensor.is_cpu and tensor.dtype in native.SUFFIX
    if plain and _lie_alike(tensor, present) and native.available():
        native.call("keep_present", tensor.dtype, tensor, present, tensor.numel())
    else:
        tensor.data.masked_fill_(present == 0, 0)  # not a product: that of zero and infinity is no number


def _lie_alike(tensor: Tensor, present: Tensor) -> bool:
    """Whether both are stored without gaps in the same order."""
    if tensor.stride() != present.stride():
        return False
    last = torch.channels_last
    return tensor.is_contiguous() or (tensor.dim() == 4 and tensor.is_contiguous(memory_format=last))
