"""A layer's support with its geometry, as the lists that native kernels walk."""

from __future__ import annotations

import ctypes
import functools
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regrow import native
from regrow.execution.kernels.operand import operand_of
from regrow.native import records
from regrow.support import Support

_KEPT_PLANS = 24  # of map sizes, windows and passes of one support
_UNROLLED, _MOST_UNITS = 4, 2**16  # kUnrolledPixels and kMostUnits of csrc/plan.h
MOST_LANES = 16
"""Of any instruction set. From so many samples on lanes are samples, and lists serve any number of them."""


class KernelPlan:
    """Owner of one native plan; an argument of native functions, alive as long as somebody holds it.

    ``support`` is the mask, or the row pointer (int64, one more than output channels) and the column in its row (int32, ascending) of each
    present weight, where no dense mask exists. Lists are for one precision, as kernels differ; with ``samples``, for batches of so many
    alone.
    """

    def __init__(
        self,
        geometry: records.Geometry,
        support: Tensor | tuple[Tensor, Tensor],
        input_gradient: bool,
        dtype: torch.dtype,
        samples: int = 0,
    ) -> None:
        self.pointer = ctypes.c_void_p()
        mask, rows, columns = (support, None, None) if isinstance(support, Tensor) else (None, *support)
        into = ctypes.byref(self.pointer)
        native.call("plan_create", dtype, ctypes.byref(geometry), mask, rows, columns, input_gradient, samples, into)
        self._as_parameter_ = self.pointer  # what ctypes passes
        # Not at exit: a thread that still computes would read freed memory.
        weakref.finalize(self, native.library().regrow_plan_free, self.pointer).atexit = False

    @property
    def nbytes(self) -> int:
        """Memory of its lists, as the library counts it."""
        count = native.library().regrow_plan_bytes
        count.restype, count.argtypes = ctypes.c_int64, [ctypes.c_void_p]
        return count(self.pointer)


@dataclass(frozen=True)
class Geometry:
    """Kernel, stride, padding (top, left, bottom, right), dilation, groups of a layer; a Linear has a kernel of 1 x 1."""

    kernel: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1

    def __post_init__(self) -> None:
        positive = (*self.kernel, *self.stride, *self.dilation, self.groups)
        if min(positive) < 1 or min(self.padding) < 0 or max(*positive, *self.padding) >= 2**31:
            raise ValueError(f"kernel, stride, dilation and groups are positive, padding is not negative: got {self}")

    @property
    def extent(self) -> tuple[int, int]:
        """Rows and columns that the kernel spans."""
        return self.dilation[0] * (self.kernel[0] - 1) + 1, self.dilation[1] * (self.kernel[1] - 1) + 1

    @property
    def smallest(self) -> tuple[int, int]:
        """The smallest input maps on which the kernel fits."""
        top, left, bottom, right = self.padding
        return max(1, self.extent[0] - top - bottom), max(1, self.extent[1] - left - right)

    def output_size(self, rows: int, cols: int) -> tuple[int, int]:
        """Output map size for an input map; raises ValueError where the kernel does not fit."""
        if rows < 1 or cols < 1:
            raise ValueError(f"maps of {rows} x {cols} have no pixels")
        least = self.smallest
        if rows < least[0] or cols < least[1]:
            raise ValueError(
                f"kernel {self.kernel} with dilation {self.dilation} needs maps of at least {least[0]} x {least[1]} pixels, "
                f"got {rows} x {cols}"
            )
        top, left, bottom, right = self.padding
        spare = rows + top + bottom - self.extent[0], cols + left + right - self.extent[1]
        return spare[0] // self.stride[0] + 1, spare[1] // self.stride[1] + 1

    def as_numbers(self) -> list[int]:
        """The fields in a row: how torch operators are given them."""
        return [*self.kernel, *self.stride, *self.padding, *self.dilation, self.groups]

    @staticmethod
    def from_numbers(numbers: Sequence[int]) -> Geometry:
        """The inverse of `as_numbers`."""
        if len(numbers) != 11:
            raise ValueError(f"a geometry has 11 numbers, got {len(numbers)}")
        n = tuple(numbers)
        return Geometry((n[0], n[1]), (n[2], n[3]), (n[4], n[5], n[6], n[7]), (n[8], n[9]), n[10])


class Plans:
    """Native plans of one support, the youngest ones."""

    def __init__(self) -> None:
        self._found: dict[tuple[Any, ...], KernelPlan] = {}
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Memory of all their lists."""
        return sum(plan.nbytes for plan in self._found.values())

    def of(
        self,
        support: Support,
        geometry: Geometry,
        input_gradient: bool,
        rows: int,
        cols: int,
        dtype: torch.dtype,
        samples: int = 0,
    ) -> KernelPlan:
        """The plan of one pass, made when first asked for; ``samples`` is 0 where it serves any number."""
        key = (geometry, input_gradient, rows, cols, dtype, samples)
        if (plan := self._found.get(key)) is not None:
            return plan
        with self._lock:
            if key not in self._found:
                if len(self._found) >= _KEPT_PLANS:
                    del self._found[next(iter(self._found))]
                record = record_of(support.shape, geometry, rows, cols)
                where = support.lists if support.is_compact else support.mask.contiguous()
                self._found[key] = KernelPlan(record, where, input_gradient, dtype, samples)
            return self._found[key]


@functools.lru_cache(maxsize=1024)
def runs_across(shape: torch.Size, w: Geometry, rows: int, cols: int, dtype: torch.dtype, samples: int) -> bool:
    """Whether lists of a layer for so few samples have columns of maps as lanes, and so serve no other number."""
    if not 0 < samples < MOST_LANES or w.kernel == (1, 1):
        return False
    answer = ctypes.c_int()
    native.call("runs_across", dtype, ctypes.byref(record_of(shape, w, rows, cols)), samples, ctypes.byref(answer))
    return bool(answer.value)


def record_of(shape: Sequence[int], w: Geometry, rows: int, cols: int) -> records.Geometry:
    """A layer with weights of ``shape`` on input maps of rows x cols, as native code wants it."""
    out = refuse_large(shape, w, rows, cols)
    sizes = (shape[1] * w.groups, shape[0], w.groups, rows, cols, *out)
    return records.Geometry(*sizes, *w.kernel, *w.stride, *w.padding[:2], *w.dilation)


def refuse_large(shape: Sequence[int], w: Geometry, rows: int, cols: int) -> tuple[int, int]:
    """The size of output maps; an error for maps that kernels, which count in 32 bits, cannot walk."""
    out = w.output_size(rows, cols)
    padded = max(rows + w.padding[0] + w.padding[2], cols + w.padding[1] + w.padding[3])
    numbers = max(rows * cols, out[0] * out[1]) * max(shape[0], shape[1] * w.groups)
    if max(padded, numbers) >= 2**31:
        raise ValueError(f"maps of {rows} x {cols} pixels are too large for sparse kernels: call handle.densify()")
    reach = [d * (k - 1) + 1 for d, k in zip(w.dilation, w.kernel, strict=True)]
    if out[0] * out[1] > _UNROLLED and reach[0] * (reach[1] + 3 * w.stride[1]) > _MOST_UNITS:
        raise ValueError(
            f"a kernel of {w.kernel} with dilation {w.dilation} reaches too far for sparse kernels: call handle.densify()"
        )
    return out


def _support(given: Tensor | Support, name: str) -> Support:
    if isinstance(given, Support):
        return given
    if given.dtype != torch.bool or given.device.type != "cpu":
        raise TypeError(f"{name} must be a bool tensor on the CPU, got {given.dtype} on {given.device}")
    return Support(given.detach().clone(memory_format=torch.contiguous_format))


class SparsePattern:
    """Which weights of one layer exist, where, and the native lists for it, built when first needed. It never changes.

    Args:
        support: the present weights, in the shape of the layer's weight: (out, in), (out, in, k) or (out, in, kh, kw). A mask is copied.
        geometry: the layer's geometry.
        reach: where weight gradients are computed; None means `support`. A superset serves methods whose backward set is larger than
            their forward set.
    """

    def __init__(
        self, support: Tensor | Support, geometry: Geometry | None = None, reach: Tensor | Support | None = None
    ) -> None:
        self.support, self.geometry = _support(support, "mask"), geometry or Geometry()
        self.reach = None if reach is None else _support(reach, "gradient_mask")
        self.kept: dict[object, Any] = {}  # what users of the lists keep with them
        check_shape(self.shape, self.geometry, self.support.nnz if self.support.is_compact else None)
        if self.reached.shape != self.shape:
            raise ValueError(f"gradient_mask has shape {tuple(self.reached.shape)}, expected {tuple(self.shape)}")

    @property
    def mask(self) -> Tensor:
        """True where a weight exists."""
        return self.support.mask

    @property
    def shape(self) -> torch.Size:
        """Of the layer's weight."""
        return self.support.shape

    @property
    def reached(self) -> Support:
        """Where weight gradients are computed."""
        return self.support if self.reach is None else self.reach

    @property
    def out_channels(self) -> int:
        """Output channels or features."""
        return self.shape[0]

    @property
    def in_channels(self) -> int:
        """Input channels or features over all groups."""
        return self.shape[1] * self.geometry.groups

    def operands(self, use: str = "forward") -> tuple[Tensor | list[int] | None, ...]:
        """What the torch operator for `forward`, `input_gradient` or `weight_gradient` takes of this pattern."""
        layer = (list(self.shape), self.geometry.as_numbers())
        if use == "weight_gradient":
            return operand_of(self.reached), *layer
        reach = None if self.reach is None else operand_of(self.reach)
        return (operand_of(self.support), *([reach] if use == "forward" else []), *layer)

    def plan(self, use: str, rows: int, cols: int, dtype: torch.dtype, samples: int) -> KernelPlan:
        """The plan for `forward`, `input_gradient` or `weight_gradient` on so many input maps of rows x cols, in one precision.

        Hold it while native code uses it: plans of other map sizes may take its place here.
        """
        support = self.reached if use == "weight_gradient" else self.support
        few = samples if runs_across(self.shape, self.geometry, rows, cols, dtype, samples) else 0
        return support.derive(Plans, Plans).of(support, self.geometry, use == "input_gradient", rows, cols, dtype, few)

    def __getstate__(self) -> dict[str, object]:
        return {"support": self.support, "geometry": self.geometry, "reach": self.reach}

    def __setstate__(self, state: dict[str, Any]) -> None:
        SparsePattern.__init__(self, **state)


def check_shape(shape: torch.Size, geometry: Geometry, count: int | None = None) -> None:
    """Refuse what kernels would read outside of: they count weights in 32 bits, those that are stored; all, where ``count`` is None."""
    counted = shape.numel() if count is None else count
    if not shape.numel() or counted >= 2**31 or len(shape) not in (2, 3, 4):
        raise ValueError(
            f"a sparse layer needs between 1 and 2**31 - 1 weights in 2 to 4 dimensions, got {tuple(shape)}"
        )
    kernel = (1, 1, *shape[2:])[-2:]
    if geometry.kernel != kernel:
        raise ValueError(f"a kernel of {geometry.kernel} does not fit weights of shape {tuple(shape)}")
    if len(shape) == 2 and (
        geometry.stride != (1, 1) or any(geometry.padding)
    ):  # its inputs may be features, without maps
        raise ValueError(f"a linear layer has neither stride nor padding: got {geometry}")
    if shape[0] % geometry.groups:
        raise ValueError(f"{shape[0]} output channels cannot be split into {geometry.groups} groups")
