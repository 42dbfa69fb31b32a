"""How often one sample's forward pass uses each weight: the one place where multiply-accumulates are counted.

MACs of a layer = uses x weights. A weight is used once per output position (convolutions; transposed ones: per input position),
row (linear), time step (recurrent) or token (projections of attention).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

_COUNTED = (nn.Linear, nn.Bilinear, _ConvNd, nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention)


def uses_per_weight(model: nn.Module, example: Tensor | tuple[Any, ...]) -> dict[nn.Parameter, float]:
    """How often one sample's forward pass multiplies each weight, over all calls of all modules that share it.

    Runs ``model`` once in eval mode without gradients. q, k and v of one tensor share the mean of their lengths.

    Example:
        >>> layer = nn.Linear(4, 2)
        >>> uses_per_weight(layer, torch.randn(3, 7, 4))[layer.weight]
        7
    """
    uses: dict[nn.Parameter, float] = {}

    def count(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        for name, per in uses_in_call(module, args, kwargs, output).items():
            weight = module.get_parameter(name)
            uses[weight] = uses.get(weight, 0) + per

    counted = [module for module in model.modules() if isinstance(module, _COUNTED)]
    hooks = [module.register_forward_hook(count, with_kwargs=True) for module in counted]
    try:
        with evaluation_mode(model), torch.no_grad():
            model(*example if isinstance(example, tuple) else (example,))
    finally:
        for hook in hooks:
            hook.remove()
    return uses


def uses_in_call(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> dict[str, float]:
    """Uses of each weight of one module, by name, in one call, per sample; nothing for modules that are not counted."""
    if not isinstance(module, _COUNTED):
        return {}
    inputs = [*args, *kwargs.values()]
    source = inputs[0]
    if isinstance(module, _ConvNd):
        # A weight [out, in, k...] meets every output position once; a transposed one every input position.
        spatial = source if isinstance(module, _ConvTransposeNd) else output
        return {"weight": math.prod(spatial.shape[-len(module.kernel_size) :])}
    if isinstance(module, (nn.RNNBase, nn.RNNCellBase)):
        times = _length(source, module.batch_first) if isinstance(module, nn.RNNBase) else 1
        return {name: times for name, _ in module.named_parameters() if name.startswith("weight")}
    if isinstance(module, nn.MultiheadAttention):
        q, k, v = (_length(tensor, module.batch_first) for tensor in inputs[:3])
        joint = {"in_proj_weight": (q + k + v) / 3} if module._qkv_same_embed_dim else {}
        apart = {"q_proj_weight": q, "k_proj_weight": k, "v_proj_weight": v}
        return {**(joint or apart), "out_proj.weight": q}
    samples = source.shape[0] if source.ndim > 1 else 1
    return {"weight": output.numel() // (output.shape[-1] * samples)}


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


def _length(sequence: Any, batch_first: bool) -> int:
    return sequence.shape[1 if batch_first and sequence.ndim == 3 else 0]
