"""Native programs (`csrc/program.h`): steps over tensors, planned for one size of input and run in one call."""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from regrow import native
from regrow.execution.kernels.pattern import Geometry
from regrow.native.records import ProgramStep, ProgramTensor

LAYER, MAX_POOL, AVERAGE_POOL, CHANNELS = range(4)
Size = tuple[int, int, int]
_LANES, _BORDER = 16, 8
_NEAR = 16 << 20  # bytes: half of a server's last cache, as a step reads one tensor and writes another
_MUCH = 64  # multiply-adds a number; fitted on ResNet-50 of 10 and 20% (45 and 80)


@dataclass
class Step:
    """One step of a program; a layer without ``where`` has all its weights."""

    kind: int
    source: int
    target: int
    geometry: Geometry
    other: int = -1
    relu: bool = False
    where: Tensor | None = None
    values: Tensor | None = None
    scale: Tensor | None = None
    bias: Tensor | None = None


class Planned:
    """Owner of one native program."""

    def __init__(
        self, sizes: list[Size], steps: list[Step], flat: bool, dtype: torch.dtype, samples_innermost: bool
    ) -> None:
        self.pointer, self.output = ctypes.c_void_p(), sizes[steps[-1].target]
        self.flat, self._dtype = flat, dtype
        tensors = (ProgramTensor * len(sizes))(*(ProgramTensor(*size) for size in sizes))
        records = (ProgramStep * len(steps))(*map(_record, steps))
        into = ctypes.byref(self.pointer)
        native.call("program_create", dtype, tensors, len(tensors), records, len(steps), samples_innermost, into)
        # Not at exit: a thread that still computes would read freed memory.
        weakref.finalize(self, native.call, "program_free", dtype, self.pointer).atexit = False

    def answer(self, x: Tensor) -> Tensor:
        """The answers to a batch of the planned size: features or maps."""
        x = x.contiguous()
        y = x.new_empty((x.shape[0], math.prod(self.output)) if self.flat else (x.shape[0], *self.output))
        native.call("program_run", self._dtype, self.pointer, x, y, x.shape[0])
        return y


def fits(sizes: Iterable[Size]) -> bool:
    """Whether places in a program's memory are small enough for the kernels' numbers."""
    return _LANES * sum(c * (rows + _BORDER) * (cols + _BORDER) for c, rows, cols in sizes) < 2**31


def samples_pay(sizes: list[Size], steps: Iterable[Step], dtype: torch.dtype) -> bool:
    """Whether many samples had better be lanes, not pixels: the largest maps of a vector of them stay in the last cache, or much is made
    of each number that comes from memory."""
    if _LANES * dtype.itemsize * max(map(math.prod, sizes)) <= _NEAR:
        return True
    multiply_adds = sum(
        len(step.values) * math.prod(sizes[step.target][1:]) for step in steps if step.values is not None
    )
    return multiply_adds > _MUCH * sum(map(math.prod, sizes))


def _record(step: Step) -> ProgramStep:
    g = step.geometry
    values = step.values
    if values is not None and step.where is None:
        step.where = torch.arange(len(values), dtype=torch.int32)
    pointers = (None if t is None else native.address(t) for t in (step.where, values, step.scale, step.bias))
    numbers = (*g.kernel, *g.stride, *g.padding[:2], *g.dilation, g.groups, step.relu)
    count = 0 if values is None else len(values)
    return ProgramStep(step.kind, step.source, step.other, step.target, *numbers, count, *pointers)
