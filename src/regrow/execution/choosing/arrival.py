"""Where activations left the kernels' layout on their way to a sparse layer, read off the autograd graph for `explain()`.

Pooling *modules* keep the layout; functional pooling is torch's own, which is slower on it and leaves it.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from regrow.execution.kernels.layout import is_chwn

_LEAVES = {
    "MaxPool2DWithIndicesBackward0": "max_pool2d (nn.MaxPool2d keeps it)",
    "AvgPool2DBackward0": "avg_pool2d (nn.AvgPool2d keeps it where windows tile the map)",
    "AdaptiveAvgPool2DBackward0": "adaptive_avg_pool2d (nn.AdaptiveAvgPool2d keeps it where windows tile the map)",
    "MeanBackward1": "a mean (nn.AdaptiveAvgPool2d(1) keeps it)",
}
_KEEPS = ("SparseFunctionBackward", "_StackFunctionBackward", "_BatchNormFunctionBackward", "_MaxPoolFunctionBackward")
_FARTHEST = 32


def left_layout(x: Tensor) -> str | None:
    """The pooling function that a CHWN activation went through to become `x`; None where there is none or `x` is in CHWN.

    Example:
        >>> import torch
        >>> left_layout(torch.ones(2, 3))
    """
    if is_chwn(x):
        return None
    found = None
    for name in _ancestors(x.grad_fn):
        if name in _KEEPS:
            return found
        found = found or _LEAVES.get(name)
    return None


def _ancestors(node: Any) -> list[str]:
    """Names of the functions that made a tensor, along first arguments."""
    names: list[str] = []
    while node is not None and len(names) < _FARTHEST:
        names.append(node.name())
        node = next((parent for parent, _ in node.next_functions if parent is not None), None)
    return names
