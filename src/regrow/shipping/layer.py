"""A sparse layer of a frozen network: present weights, where they are, bias, perhaps a ReLU; plain tensors and numbers, no autograd.

`regrow::frozen_layer` is the operator that traced, compiled and exported programs call; they hold the tensors and load wherever regrow
is imported.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from regrow import native
from regrow.execution.kernels.layout import empty_chwn, to_chwn, to_ordinary
from regrow.execution.kernels.pattern import Geometry, KernelPlan, check_shape, record_of
from regrow.execution.modules.geometry import geometry_of
from regrow.marks import positions
from regrow.shipping.planned import LAYER, Planned, Step, fits

LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d)
FEW = 8
"""Fewer samples than this are computed with vectors of pixels."""


class FrozenLayer(nn.Module):
    """A linear or convolutional layer that computes with its present weights only."""

    values: Tensor
    where: Tensor
    bias: Tensor | None

    def __init__(self, layer: nn.Linear | nn.Conv1d | nn.Conv2d, mask: Tensor, relu: bool = False) -> None:
        super().__init__()
        found = positions(mask)
        self.register_buffer("values", layer.weight.detach().reshape(-1)[found].contiguous())
        self.register_buffer("where", found.to(torch.int32))
        self.register_buffer("bias", None if layer.bias is None else layer.bias.detach().clone())
        self.shape = tuple(layer.weight.shape)
        self.geometry, self.relu = geometry_of(layer), relu

    def forward(self, x: Tensor) -> Tensor:
        """The layer, with its ReLU, on (..., features) or maps."""
        linear, lifted = len(self.shape) == 2, len(self.shape) == 3
        if not linear and x.dim() == len(self.shape) - 1:
            return self.forward(x[None])[0]
        given = x.reshape(-1, x.shape[-1]) if linear and x.dim() != 2 else x[..., None, :] if lifted else x
        y = self._compute(given)
        if linear and x.dim() != 2:
            return y.reshape(*x.shape[:-1], self.shape[0])
        return y[..., 0, :] if lifted else y

    def _compute(self, x: Tensor) -> Tensor:
        numbers = list(self.shape), self.geometry.as_numbers()
        if not native.reads(x):
            return torch.ops.regrow.frozen_layer(x, self.values, self.where, self.bias, *numbers, self.relu)
        return compute(x, self.values, self.where, self.bias, *numbers, self.relu)

    def extra_repr(self) -> str:
        """Its size."""
        return f"{self.shape}, {len(self.values):,} of {math.prod(self.shape):,} weights{', ReLU' if self.relu else ''}"


def compute(
    x: Tensor, values: Tensor, where: Tensor, bias: Tensor | None, shape: list[int], numbers: list[int], relu: bool
) -> Tensor:
    """The layer on features or maps: lanes are pixels of few samples, or many samples; the result lies as suits these."""
    geometry = Geometry.from_numbers(numbers)
    _check_input(x, values, shape, geometry.groups)
    rows, cols = (1, 1) if x.dim() == 2 else (x.shape[2], x.shape[3])
    out = geometry.output_size(rows, cols)
    size = (tuple(shape), geometry, rows, cols)
    sizes = [(shape[1] * geometry.groups, rows, cols), (shape[0], *out)]
    if x.shape[0] < FEW and fits(sizes):
        step = Step(LAYER, 0, 1, geometry, relu=relu, where=where, values=values, bias=bias)
        program: Planned = _kept(
            (where, values, bias),
            ("program", relu, *size),
            lambda: Planned(sizes, [step], len(shape) == 2, x.dtype, False),
        )
        return program.answer(x)
    plan: KernelPlan = _kept((where,), ("plan", x.dtype, *size), lambda: _plan(where, *size, x.dtype))
    y = empty_chwn(_output_shape(x, shape, geometry), x)
    native.call("forward", x.dtype, plan, to_chwn(x), values, None, 0, values, bias, y, x.shape[0], False)
    return y.relu_() if relu else y


def _check_input(x: Tensor, values: Tensor, shape: list[int], groups: int) -> None:
    """Kernels read as much memory as the layer's shape says, in the weights' precision."""
    if x.dim() != (2 if len(shape) == 2 else 4) or x.shape[1] != shape[1] * groups:
        what = "features" if len(shape) == 2 else "channels"
        raise ValueError(f"the layer reads {shape[1] * groups} {what}, got a tensor of shape {tuple(x.shape)}")
    if x.dtype != values.dtype:
        raise TypeError(f"the layer has weights in {values.dtype}, got {x.dtype}")


_lock = threading.Lock()
_lists: dict[tuple[Any, ...], tuple[Any, Any]] = {}
_KEPT = 1024


def _kept(tensors: tuple[Tensor | None, ...], kind: tuple[Any, ...], build: Callable[[], Any]) -> Any:
    """What kernels need of a layer for maps of one size, built when first asked for.

    Found by the addresses of its tensors, which are kept with it so that nothing else can come to lie there.
    """
    key = (*(None if t is None else (t.data_ptr(), t._version, len(t)) for t in tensors), *kind)
    with _lock:
        if key not in _lists:
            if len(_lists) >= _KEPT:
                del _lists[next(iter(_lists))]
            _lists[key] = tensors, build()
        return _lists[key][1]


def _plan(
    where: Tensor, shape: tuple[int, ...], geometry: Geometry, rows: int, cols: int, dtype: torch.dtype
) -> KernelPlan:
    record = record_of(shape, geometry, rows, cols)
    return KernelPlan(record, rows_and_columns(where, shape), input_gradient=False, dtype=dtype)


def rows_and_columns(where: Tensor, shape: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Where each output's weights begin (int64, one more than outputs), and each weight's place among its output's (int32)."""
    columns = math.prod(shape[1:])
    starts = torch.searchsorted(where, torch.arange(shape[0] + 1, dtype=torch.int64) * columns)
    return starts, where.remainder(columns)


def _output_shape(x: Tensor, shape: list[int], geometry: Geometry) -> tuple[int, ...]:
    return (x.shape[0], shape[0], *(() if x.dim() == 2 else geometry.output_size(x.shape[2], x.shape[3])))


_library = torch.library.Library("regrow", "FRAGMENT")
_library.define(
    "frozen_layer(Tensor x, Tensor values, Tensor where, Tensor? bias, int[] shape, int[] geometry, bool relu) -> Tensor"
)


def _frozen_layer(
    x: Tensor, values: Tensor, where: Tensor, bias: Tensor | None, shape: list[int], geometry: list[int], relu: bool
) -> Tensor:
    _check(values, where, bias, shape, Geometry.from_numbers(geometry))
    return to_ordinary(compute(x, values, where, bias, shape, geometry, relu))


def _check(values: Tensor, where: Tensor, bias: Tensor | None, shape: Sequence[int], geometry: Geometry) -> None:
    """A program from elsewhere may hold anything, and kernels trust what they are given."""
    check_shape(torch.Size(shape), geometry)
    given = [values, where] + ([] if bias is None else [bias])
    plain = all(tensor.is_contiguous() and native.is_plain(tensor) for tensor in given)
    fits = where.dtype == torch.int32 and where.shape == values.shape == (values.numel(),)
    bias_fits = bias is None or (bias.shape == (shape[0],) and bias.dtype == values.dtype)
    if not (plain and fits and bias_fits):
        raise ValueError(f"values, their positions and the bias do not fit a weight of shape {tuple(shape)}")
    if len(where) and (int(where.min()) < 0 or int(where.max()) >= math.prod(shape) or bool((where.diff() <= 0).any())):
        raise ValueError(f"positions of weights do not rise inside a weight of shape {tuple(shape)}")


def _inference_only(ctx: Any, *grads: Tensor) -> NoReturn:
    raise RuntimeError("a frozen network has no gradients: differentiate the model that it was made of")


_library.impl("frozen_layer", _frozen_layer, "CPU")
torch.library.register_autograd("regrow::frozen_layer", _inference_only, lib=_library)


@torch.library.register_fake("regrow::frozen_layer", lib=_library)
def _(
    x: Tensor, values: Tensor, where: Tensor, bias: Tensor | None, shape: list[int], geometry: list[int], relu: bool
) -> Tensor:
    layer = Geometry.from_numbers(geometry)
    _check_input(x, values, shape, layer.groups)
    return x.new_empty(_output_shape(x, shape, layer))
