"""How often one sample's forward pass uses each weight: the one place where multiply-accumulates are counted.

MACs of a layer = uses x weights. A weight is used once per output position (convolutions; transposed ones: per input position),
row (linear), time step (recurrent) or token (projections of attention).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from regrow.scope import is_inputs_first

_COUNTED = (nn.Linear, nn.Bilinear, _ConvNd, nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention)


class Batch:
    """How many samples one pass of a model has: the first dimension of its input, unless its layers say otherwise.

    Layers may see other sizes there, where frames, windows or tokens are folded into the batch dimension. Those that get the input as it
    came tell where its samples are: nowhere (a convolution of one map), or behind the time steps (recurrent layers, attention).
    """

    def __init__(self, example: Tensor | tuple[Any, ...]) -> None:
        given = example if isinstance(example, tuple) else (example,)
        self._shape = next((tuple(part.shape) for part in given if isinstance(part, Tensor)), ())
        self.size = self._shape[0] if len(self._shape) > 1 else 1

    def notice(self, module: nn.Module, source: Any) -> None:
        """A layer was called with ``source``."""
        if not isinstance(source, Tensor):
            return
        if isinstance(module, _ConvNd):
            if tuple(source.shape) == self._shape and source.ndim == len(module.kernel_size) + 1:
                self.size = 1
        elif isinstance(module, (nn.RNNBase, nn.MultiheadAttention)) and not module.batch_first:
            if source.ndim == 2 and tuple(source.shape) == self._shape:
                self.size = 1
            elif source.ndim == 3 and tuple(source.shape[:2]) == self._shape[:2]:
                self.size = source.shape[1]


def uses_per_weight(model: nn.Module, example: Tensor | tuple[Any, ...]) -> dict[nn.Parameter, float]:
    """How often one sample's forward pass multiplies each weight, over all calls of all modules that share it.

    Runs ``model`` once in eval mode without gradients. q, k and v of one tensor share the mean of their lengths.

    Example:
        >>> layer = nn.Linear(4, 2)
        >>> uses_per_weight(layer, torch.randn(3, 7, 4))[layer.weight]
        7.0
    """
    uses: dict[nn.Parameter, float] = {}
    batch = Batch(example)

    def count(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        parameters = dict(module.named_parameters(remove_duplicate=False))
        for name, times in uses_in_call(module, args, kwargs, output, batch).items():
            weight = parameters[name]
            uses[weight] = uses.get(weight, 0) + times

    counted = [module for module in model.modules() if _is_counted(module)]
    hooks = [module.register_forward_hook(count, with_kwargs=True) for module in counted]
    try:
        with evaluation_mode(model), torch.no_grad():
            model(*example if isinstance(example, tuple) else (example,))
    finally:
        for hook in hooks:
            hook.remove()
    return {weight: times / batch.size for weight, times in uses.items()}


def uses_in_call(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any, batch: Batch
) -> dict[str, float]:
    """Uses of each weight of one module, by name, in one call, over the whole ``batch``; nothing for modules that are not counted."""
    if not _is_counted(module):
        return {}
    inputs = [*args, *kwargs.values()]
    source = inputs[0]
    batch.notice(module, source)
    if isinstance(module, _ConvTransposeNd):  # a weight meets every input position once
        return {"weight": source.numel() / module.in_channels}
    if isinstance(module, _ConvNd):
        return {"weight": output.numel() / module.out_channels}
    if isinstance(module, (nn.RNNBase, nn.RNNCellBase)):
        return {name: _rows(source) for name, _ in module.named_parameters() if name.startswith("weight")}
    if isinstance(module, nn.MultiheadAttention):
        q, k, v = (_rows(tensor) for tensor in inputs[:3])
        joint = {"in_proj_weight": (q + k + v) / 3} if module._qkv_same_embed_dim else {}
        apart = {"q_proj_weight": q, "k_proj_weight": k, "v_proj_weight": v}
        return {**(joint or apart), "out_proj.weight": q}
    return {"weight": _rows(output)}  # linear layers of either order, bilinear ones


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Evaluation mode inside, each module's own mode again afterwards, also after an error.

    In training mode batch norm would fail on one sample, or move its statistics.
    """
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


def _is_counted(module: nn.Module) -> bool:
    return isinstance(module, _COUNTED) or is_inputs_first(module)


def _rows(tensor: Any) -> float:
    """Feature vectors in a tensor, or in a packed sequence, which knows how long each of its samples is."""
    data = tensor.data
    return data.numel() / data.shape[-1]
