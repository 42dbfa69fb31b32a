"""What a model costs: weights, biases and multiply-accumulates (MACs) of every layer, from one dry run.

The run uses shapes only (torch's meta device), so that even ResNet-50 costs no memory. FLOPs = 2 x MACs. As in the
sparse-training literature only convolutions and linear layers count: a weight is used once per output position (`regrow.uses`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from regrow.uses import Batch, evaluation_mode, uses_in_call

Kind = Literal["conv", "linear", "norm", "other"]
_NORMS = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)


@dataclass(frozen=True)
class LayerCost:
    """One module that owns parameters.

    Attributes:
        name: as in `model.named_modules()`.
        kind: `conv` and `linear` have sparsifiable weights; `norm` has none; `other` is everything else.
        weight_shape: shape of the weight, or None where the module has no parameter called `weight`.
        output_shape: of one sample, without the batch dimension; None where the layer was not called.
        weights: entries of the weight of a `conv` or `linear` layer, else 0.
        bias: entries of its bias.
        extra: all other parameters (batch norm, embeddings, ...).
        macs: per sample, over all calls; 0 for `norm`; None where the work is not counted (`other`).
        calls: how often the forward pass used the layer; 0 means it was never reached.
    """

    name: str
    kind: Kind
    weight_shape: tuple[int, ...] | None
    output_shape: tuple[int, ...] | None
    weights: int
    bias: int
    extra: int
    macs: int | None
    calls: int


@dataclass(frozen=True)
class ModelCost:
    """The table of all layers and its sums; a weight that two layers share counts in both."""

    layers: tuple[LayerCost, ...]

    def __getitem__(self, name: str) -> LayerCost:
        """The layer called `name`."""
        for layer in self.layers:
            if layer.name == name:
                return layer
        raise KeyError(name)

    @property
    def sparsifiable(self) -> tuple[LayerCost, ...]:
        """Convolutions and linear layers, in the order of the model."""
        return tuple(layer for layer in self.layers if layer.kind in ("conv", "linear"))

    @property
    def weights(self) -> int:
        """Sparsifiable weights."""
        return sum(layer.weights for layer in self.layers)

    @property
    def biases(self) -> int:
        """Biases of convolutions and linear layers."""
        return sum(layer.bias for layer in self.layers)

    @property
    def params(self) -> int:
        """All parameters."""
        return sum(layer.weights + layer.bias + layer.extra for layer in self.layers)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the forward pass of one sample."""
        return sum(layer.macs or 0 for layer in self.layers)

    @property
    def flops(self) -> int:
        """2 x MACs."""
        return 2 * self.macs

    def macs_at(self, densities: Mapping[str, float]) -> float:
        """Expected MACs, the sum over layers of MACs x density; layers that are not named are dense.

        >>> model = nn.Linear(10, 10)
        >>> cost(nn.Sequential(model, nn.Linear(10, 2)), (10,)).macs_at({"0": 0.1})
        30.0
        """
        unknown = set(densities) - {layer.name for layer in self.sparsifiable}
        if unknown:
            raise ValueError(f"no convolution or linear layer is called {', '.join(sorted(unknown))}")
        return math.fsum((layer.macs or 0) * densities.get(layer.name, 1.0) for layer in self.layers)


def cost(model: nn.Module, input_shape: tuple[int, ...] | None = None, *, sample: Tensor | None = None) -> ModelCost:
    """Count a model's layers in one forward pass in evaluation mode; the model is left as it was.

    Args:
        model: any module that takes one tensor.
        input_shape: of one sample, without the batch dimension; the pass is then run on shapes alone.
        sample: a real batch of one sample instead, for models that look at values.

    Example:
        >>> cost(nn.Sequential(nn.Linear(4, 2)), (4,)).macs
        8
    """
    if (input_shape is None) == (sample is None):
        raise TypeError("cost() takes either input_shape or sample")
    calls: dict[str, _Calls] = {}
    example = _shape_of_one(model, input_shape or ()) if sample is None else sample
    batch = Batch(example)
    with evaluation_mode(model), _recording(model, calls, batch), torch.no_grad():
        if sample is not None:
            model(sample)
        else:
            _run_on_shapes(model, example)
    return ModelCost(tuple(_layer_cost(name, module, calls[name], batch.size) for name, module in _owners(model)))


def _shape_of_one(model: nn.Module, input_shape: tuple[int, ...]) -> Tensor:
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    return torch.empty((1, *input_shape), dtype=dtype, device="meta")


def _run_on_shapes(model: nn.Module, example: Tensor) -> None:
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    shadows = {name: torch.empty_like(tensor, device="meta") for name, tensor in tensors.items()}
    try:
        functional_call(model, shadows, (example,))
    except (NotImplementedError, RuntimeError) as error:
        raise ValueError(
            f"the model could not be run on the shape {tuple(example.shape[1:])} alone: {error}. Check the shape; for one "
            "that looks at values give cost(model, sample=...) a real batch of one sample"
        ) from error


def _owners(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Modules that own parameters themselves, not through children."""
    for name, module in model.named_modules():
        if any(True for _ in module.parameters(recurse=False)):
            yield name, module


@dataclass
class _Calls:
    """Output shapes of one sample, one per call, and how often all calls together used each weight, over the batch."""

    shapes: list[tuple[int, ...]] = field(default_factory=list)
    uses: float = 0


@contextmanager
def _recording(model: nn.Module, calls: dict[str, _Calls], batch: Batch) -> Iterator[None]:
    """Note each call of each layer."""
    handles = []
    for name, module in _owners(model):
        mine = calls[name] = _Calls()

        def note(module: nn.Module, args: tuple, kwargs: dict, result: object, mine: _Calls = mine) -> None:
            first = result[0] if isinstance(result, (tuple, list)) and result else result
            mine.shapes.append(tuple(first.shape[1:]) if isinstance(first, Tensor) else ())
            mine.uses += uses_in_call(module, args, kwargs, result, batch).get("weight", 0)

        handles.append(module.register_forward_hook(note, with_kwargs=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _layer_cost(name: str, module: nn.Module, calls: _Calls, samples: int) -> LayerCost:
    kind = _kind(module)
    own = dict(module.named_parameters(recurse=False))
    weight = own.get("weight")
    sparsifiable = kind in ("conv", "linear")
    weights = weight.numel() if sparsifiable and weight is not None else 0
    bias = own["bias"].numel() if sparsifiable and "bias" in own else 0
    return LayerCost(
        name=name,
        kind=kind,
        weight_shape=None if weight is None else tuple(weight.shape),
        output_shape=calls.shapes[-1] if calls.shapes else None,
        weights=weights,
        bias=bias,
        extra=sum(parameter.numel() for parameter in own.values()) - weights - bias,
        macs=None if kind == "other" else round(weights * calls.uses / samples),
        calls=len(calls.shapes),
    )


def _kind(module: nn.Module) -> Kind:
    if isinstance(module, _ConvNd):
        return "conv"
    if isinstance(module, nn.Linear):
        return "linear"
    return "norm" if isinstance(module, _NORMS) else "other"
