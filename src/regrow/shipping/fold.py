"""Batch norm folded into a layer before or behind it.

scale = weight / sqrt(variance + eps), shift = bias - mean scale

behind a layer  (W x + b) scale + shift        = (scale W) x + (scale b + shift)     exact everywhere
before a layer  W (scale x + shift) + b        = (W scale) x + (W shift + b)         exact where nothing is padded with zeros
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm

from regrow.shipping.graph import LAYERS, NORMS, Graph, flattens, is_flat, observed


def fold_norms(graph: Graph) -> int:
    """Fold every batch norm that can be; returns how many."""
    return sum(_fold(graph, node) for node in graph if isinstance(graph.of(node), NORMS))


def scale_shift(norm: _BatchNorm) -> tuple[Tensor, Tensor]:
    """What a norm does in evaluation mode, per channel, in double precision."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = (norm.running_var.double() + norm.eps).rsqrt()
    scale = scale if norm.weight is None else scale * norm.weight.double()
    shift = -norm.running_mean.double() * scale
    return scale, shift if norm.bias is None else shift + norm.bias.double()


def pads(layer: nn.Module) -> bool:
    """Whether a layer reads zeros beyond the border."""
    padding = getattr(layer, "padding", 0)
    if isinstance(padding, str):
        return padding != "valid" and any(size > 1 for size in layer.kernel_size)  # type: ignore[union-attr]
    return any(size > 0 for size in (padding if isinstance(padding, tuple) else (padding,)))


def set_layer(layer: Any, weight: Tensor, bias: Tensor | None) -> None:
    """Give a layer weight and bias, in the weight's precision."""
    layer.weight = nn.Parameter(weight, requires_grad=False)
    layer.bias = None if bias is None else nn.Parameter(bias.to(weight.dtype), requires_grad=False)


def double_bias(layer: Any) -> Tensor:
    """A layer's bias, or zeros."""
    return torch.zeros(layer.weight.shape[0], dtype=torch.float64) if layer.bias is None else layer.bias.double()


def _fold(graph: Graph, node: fx.Node) -> bool:
    norm, before = graph.of(node), node.args[0]
    if not isinstance(norm, NORMS) or norm.running_mean is None or observed(norm) or not isinstance(before, fx.Node):
        return False
    if _channels_last_of(graph, before) and len(before.users) == 1:
        _fold_behind(graph.of(before), norm)  # type: ignore[arg-type]
        graph.remove(node, before)
        return True
    return _fold_before(graph, node, norm)


def _channels_last_of(graph: Graph, node: fx.Node) -> bool:
    """Whether a node is a layer whose outputs are what a norm behind it counts as channels."""
    layer = graph.of(node)
    if not isinstance(layer, nn.Linear) or observed(layer):
        return isinstance(layer, LAYERS) and not observed(layer)
    return is_flat(node, graph)  # a norm counts the features of a linear layer only if there are no other dimensions


def _fold_behind(layer: nn.Module, norm: _BatchNorm) -> None:
    scale, shift = scale_shift(norm)
    weight: Tensor = layer.weight  # type: ignore[assignment]
    scaled = weight * scale.to(weight.dtype).reshape(-1, *[1] * (weight.dim() - 1))
    set_layer(layer, scaled, double_bias(layer) * scale + shift)


def _fold_before(graph: Graph, node: fx.Node, norm: _BatchNorm) -> bool:
    """Into the one layer that reads the norm, directly or flattened."""
    if len(node.users) != 1:
        return False
    (user,) = node.users
    through = user
    if flattens(user, graph) and len(user.users) == 1:
        (through,) = user.users
    layer = graph.of(through)
    if not isinstance(layer, LAYERS) or observed(layer) or pads(layer) or getattr(layer, "groups", 1) != 1:
        return False
    if isinstance(layer, nn.Linear) and through is user and not is_flat(node, graph):
        return False
    scale, shift = scale_shift(norm)
    weight = layer.weight
    repeats = weight.shape[1] // len(scale)
    scale, shift = scale.repeat_interleave(repeats), shift.repeat_interleave(repeats)
    form = (1, -1, *[1] * (weight.dim() - 2))
    bias = double_bias(layer) + (weight.double() * shift.view(form)).flatten(1).sum(1)
    set_layer(layer, weight * scale.to(weight.dtype).view(form), bias)
    graph.remove(node, node.args[0])  # type: ignore[arg-type]
    return True
