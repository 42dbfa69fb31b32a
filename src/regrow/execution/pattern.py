"""A mask with its layer's geometry, as the lists that native kernels walk."""

from __future__ import annotations

import ctypes
import itertools
import threading
import weakref
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from regrow.execution import native
from regrow.execution.records import Geometry
from regrow.marks import positions

_KEPT_PLANS = 8  # map sizes kept per pattern and pass
_numbers = itertools.count()
_patterns: weakref.WeakValueDictionary[int, SparsePattern] = weakref.WeakValueDictionary()


class NativePlan:
    """Owner of one native plan; an argument of native functions, alive as long as somebody holds it.

    ``support`` is the mask, or the row pointer (int64, one more than output channels) and the column in its row (int32, ascending) of each
    present weight, where no dense mask exists. Lists are for one precision, as kernels differ.
    """

    def __init__(
        self, geometry: Geometry, support: Tensor | tuple[Tensor, Tensor], input_gradient: bool, dtype: torch.dtype
    ) -> None:
        self.pointer = ctypes.c_void_p()
        mask, rows, columns = (support, None, None) if isinstance(support, Tensor) else (None, *support)
        into = ctypes.byref(self.pointer)
        native.call("plan_create", dtype, ctypes.byref(geometry), mask, rows, columns, input_gradient, into)
        self._as_parameter_ = self.pointer  # what ctypes passes
        weakref.finalize(self, native.library().regrow_plan_free, self.pointer)


@dataclass(frozen=True)
class Window:
    """Kernel, stride, padding (top, left, bottom, right), dilation, groups of a layer; a Linear is a 1 x 1 window."""

    kernel: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1

    def output_size(self, rows: int, cols: int) -> tuple[int, int]:
        """Output map size for an input map; raises ValueError where the window does not fit."""
        top, left, bottom, right = self.padding
        sizes = []
        for size, pad, axis in ((rows, top + bottom, 0), (cols, left + right, 1)):
            room = size + pad - self.dilation[axis] * (self.kernel[axis] - 1) - 1
            if room < 0:
                raise ValueError(
                    f"kernel {self.kernel} with dilation {self.dilation} is larger than the padded input {size + pad}"
                )
            sizes.append(room // self.stride[axis] + 1)
        return sizes[0], sizes[1]


@dataclass(eq=False)
class SparsePattern:
    """Which weights of one layer exist, and the native lists for it, built when first needed.

    Args:
        mask: bool, shaped like the layer's weight: (out, in), (out, in, k) or (out, in, kh, kw).
        window: the layer's geometry.
        gradient_mask: positions at which weight gradients are computed; None means `mask`. A superset serves methods
            whose backward set is larger than their forward set.
    """

    mask: Tensor
    window: Window = field(default_factory=Window)
    gradient_mask: Tensor | None = None

    def __post_init__(self) -> None:
        self._register()
        self.update(self.mask, self.gradient_mask)

    def _register(self) -> None:
        self.number = next(_numbers)
        self._lock = threading.Lock()
        _patterns[self.number] = self

    def update(self, mask: Tensor, gradient_mask: Tensor | None = None) -> None:
        """Take new masks; lists are rebuilt at the next use."""
        for name, m in (("mask", mask), ("gradient_mask", gradient_mask)):
            if m is None:
                continue
            if m.dtype != torch.bool or m.device.type != "cpu":
                raise TypeError(f"{name} must be a bool tensor on the CPU, got {m.dtype} on {m.device}")
            if m.shape != self.mask.shape:
                raise ValueError(f"{name} has shape {tuple(m.shape)}, expected {tuple(self.mask.shape)}")
        if self.mask.numel() == 0 or self.mask.numel() >= 2**31:
            raise ValueError(
                f"a sparse layer needs between 1 and 2**31 - 1 weights, got shape {tuple(self.mask.shape)}"
            )
        self.mask = mask.detach().clone(memory_format=torch.contiguous_format)
        self.gradient_mask = (
            None if gradient_mask is None else gradient_mask.detach().clone(memory_format=torch.contiguous_format)
        )
        self.nnz = int(self.mask.sum())
        self.gradient_nnz = self.nnz if gradient_mask is None else int(gradient_mask.sum())
        self.derived: dict[object, Any] = {}  # what users of the lists keep with them; gone with the masks
        self._plans: dict[tuple[str, int, int, torch.dtype], NativePlan] = {}
        self._positions: dict[str, Tensor] = {}

    @property
    def out_channels(self) -> int:
        """Output channels or features."""
        return self.mask.shape[0]

    @property
    def in_channels(self) -> int:
        """Input channels or features over all groups."""
        return self.mask.shape[1] * self.window.groups

    def positions(self, use: str = "forward") -> Tensor:
        """Flat indices of the present weights (for `weight_gradient`: of the gradient mask), int32, ascending."""
        key, mask = "forward", self.mask
        if use == "weight_gradient" and self.gradient_mask is not None:
            key, mask = use, self.gradient_mask
        if key not in self._positions:
            self._positions[key] = positions(mask).to(torch.int32)
        return self._positions[key]

    def plan(self, use: str, rows: int, cols: int, dtype: torch.dtype) -> NativePlan:
        """The plan for `forward`, `input_gradient` or `weight_gradient` on input maps of rows x cols, in one precision.

        Hold it while native code uses it: plans of other map sizes may take its place here.
        """
        mask = self.mask
        if use == "weight_gradient":
            use, mask = ("forward", mask) if self.gradient_mask is None else (use, self.gradient_mask)
        key = (use, rows, cols, dtype)
        with self._lock:
            if key not in self._plans:
                if len(self._plans) >= 3 * _KEPT_PLANS:
                    del self._plans[next(iter(self._plans))]
                self._plans[key] = NativePlan(self._geometry(rows, cols), mask, use == "input_gradient", dtype)
            return self._plans[key]

    def _geometry(self, rows: int, cols: int) -> Geometry:
        w = self.window
        sizes = (self.in_channels, self.out_channels, w.groups, rows, cols, *w.output_size(rows, cols))
        return Geometry(*sizes, *w.kernel, *w.stride, *w.padding[:2], *w.dilation)

    def __getstate__(self) -> dict[str, object]:
        return {"mask": self.mask, "window": self.window, "gradient_mask": self.gradient_mask}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self.__post_init__()


def pattern_of(number: int) -> SparsePattern:
    """The live pattern with this number: how torch operators refer to one."""
    try:
        return _patterns[number]
    except KeyError:
        raise ValueError(f"no sparse pattern number {number} exists (any more)") from None
