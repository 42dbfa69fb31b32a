"""Layers that exist sparse only: connectivity drawn or given, values of present weights, nothing of the layer's dense size.

SparseLinear(600_000, 600_000, density=7e-5)      one layer
materialise(model, density=0.05)                  a whole model that was built on the meta device
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from regrow import randomness
from regrow.errors import ConfigurationError
from regrow.execution.kernels.pattern import SparsePattern
from regrow.execution.modules.geometry import Dense, geometry_of
from regrow.execution.modules.layers import attach_pattern, sparse_class_of
from regrow.marks import Marks
from regrow.scope import Rule, Scope, choose
from regrow.support import Support
from regrow.topology import distribution as distributions
from regrow.topology.select import at_random


def SparseLinear(
    in_features: int,
    out_features: int,
    density: float | None = None,
    *,
    bias: bool = True,
    connectivity: Any = None,
    seed: int = 0,
    dtype: torch.dtype | None = None,
) -> nn.Linear:
    """A linear layer that is sparse from the first: y = x W^T + b, W without its missing entries.

    Train it with ``regrow.sparsify(model, optimizer, ..., execution="sparse", storage="compact")``, density left out.

    Args:
        in_features, out_features: as of ``torch.nn.Linear``; their product may be far beyond memory.
        density: share of weights that exist, drawn at random.
        bias: whether to add one.
        connectivity: which weights exist, in place of a density: a ``scipy.sparse`` matrix or a torch sparse tensor [out, in]. Its values
            are not used.
        seed: of the draw. Values come from torch's generator, by the rule of ``torch.nn.Linear``: uniform within 1 / sqrt(in_features).
        dtype: of the weights, float32 or float64.

    Example:
        >>> layer = SparseLinear(8, 4, density=0.25)
        >>> layer(torch.ones(2, 8)).shape, sum(p.numel() for p in layer.parameters())
        (torch.Size([2, 4]), 12)
    """
    if (density is None) == (connectivity is None):
        raise ConfigurationError("SparseLinear takes a density or a connectivity, one of them")
    shape = torch.Size([out_features, in_features])
    if connectivity is None:
        assert density is not None
        if not 0 < density <= 1:
            raise ConfigurationError(f"density must lie in (0, 1], got {density!r}")
        marks = _drawn(shape, max(1, round(density * shape.numel())), randomness.generator(seed, "connectivity"))
    else:
        marks = marks_of(connectivity, shape)
    layer = nn.Linear(in_features, out_features, bias, device="meta", dtype=dtype)
    return _filled(layer, marks)  # type: ignore[return-value]


def marks_of(connectivity: Any, shape: torch.Size) -> Marks:
    """Where a ``scipy.sparse`` matrix or a torch sparse tensor has entries, explicit zeros included."""
    if isinstance(connectivity, Tensor):
        rows, columns = connectivity.to_sparse_coo().coalesce().indices()
    elif hasattr(connectivity, "tocoo"):
        entries = connectivity.tocoo()
        rows, columns = (torch.from_numpy(part).to(torch.int64) for part in (entries.row, entries.col))
    else:
        raise ConfigurationError(
            f"connectivity is a scipy.sparse matrix or a torch sparse tensor, got {type(connectivity).__name__}"
        )
    if tuple(connectivity.shape) != tuple(shape):
        raise ConfigurationError(
            f"connectivity has shape {tuple(connectivity.shape)}, the layer's weight {tuple(shape)}"
        )
    return Marks(shape, torch.unique(rows * shape[1] + columns))


def materialise(
    model: nn.Module,
    *,
    density: float,
    scope: str | Scope | Sequence[Rule] = "fully-sparse",
    distribution: str | Mapping[str, float] = "uniform",
    seed: int = 0,
) -> nn.Module:
    """Give a model that was built on the meta device its weights: sparse layers of the scope present ones only, the rest as ever.

    Values follow torch's rule for linear layers and convolutions, with the fan-in of the dense layer. Modules outside the scope draw
    theirs by their own ``reset_parameters``.

    Example:
        >>> with torch.device("meta"):
        ...     net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
        >>> sum(p.numel() for p in materialise(net, density=0.25).parameters())
        36
    """
    layers, _ = choose(model, scope)
    for layer in layers:
        if layer.rows is not None or not isinstance(layer.module, Dense) or sparse_class_of(type(layer.module)) is None:
            raise ConfigurationError(
                f"layer {layer.name} has no sparse kernels: keep it dense, scope=Scope(dense=({layer.name!r},))"
            )
    shapes = [tuple(layer.shape) for layer in layers]
    densities = distributions.layer_densities(distribution, [layer.name for layer in layers], shapes, density)
    total = distributions.budget(density, [math.prod(shape) for shape in shapes])
    for layer, count in zip(layers, distributions.exact_counts(densities, shapes, total), strict=True):
        _filled(layer.module, _drawn(layer.shape, count, randomness.generator(seed, "connectivity", layer.name)))
    for name, module in model.named_modules():
        own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        if any(tensor.is_meta for tensor in own):
            if not hasattr(module, "reset_parameters"):
                raise ConfigurationError(
                    f"module {name or type(model).__name__} cannot draw its own weights: build it off the meta device"
                )
            module.to_empty(device="cpu", recurse=False)
            module.reset_parameters()
    return model


def _drawn(shape: torch.Size, count: int, source: torch.Generator) -> Marks:
    everywhere = Marks(shape, torch.empty(0, dtype=torch.int64), inverted=True)
    drawn = at_random(count, everywhere, source)
    assert isinstance(drawn, Marks)
    return drawn


def _filled(module: nn.Module, marks: Marks) -> nn.Module:
    """Let a layer on the meta device hold the values of some positions."""
    weight, bias = module._parameters["weight"], module._parameters["bias"]
    assert weight is not None
    bound = 1 / math.sqrt(marks.shape[1:].numel())
    values = torch.empty(marks.count, dtype=weight.dtype).uniform_(-bound, bound)
    module._parameters["weight"] = nn.Parameter(values, weight.requires_grad)
    if bias is not None:
        drawn = torch.empty(bias.shape, dtype=bias.dtype).uniform_(-bound, bound)
        module._parameters["bias"] = nn.Parameter(drawn, bias.requires_grad)
    attach_pattern(module, SparsePattern(Support(marks), geometry_of(module)))  # type: ignore[arg-type]
    return module
