"""A sparse layer on few samples: vectors of pixels in place of vectors of samples (`csrc/pixels.inl`)."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from regrow.execution.kernels import native
from regrow.execution.kernels.pattern import Geometry
from regrow.execution.kernels.records import PixelLayer


@dataclass(frozen=True)
class Pixels:
    """Lists of one layer for input maps of one size: where each output's entries begin, and their shifts in the packed input."""

    sizes: tuple[int, ...]
    begins: Tensor
    offsets: Tensor
    output: tuple[int, ...]

    def compute(self, x: Tensor, values: Tensor, bias: Tensor | None, relu: bool) -> Tensor:
        """The layer on contiguous features or maps."""
        y = x.new_empty((x.shape[0], *self.output[: x.dim() - 1]))
        pointers = (self.begins, self.offsets, values, bias)
        layer = PixelLayer(*self.sizes, relu, *(None if t is None else t.data_ptr() for t in pointers))
        native.call("pixel_layer", x.dtype, ctypes.byref(layer), x, y, x.shape[0])
        return y


def pixels_of(where: Tensor, shape: tuple[int, ...], geometry: Geometry, rows: int, cols: int) -> Pixels:
    """The lists for a weight's present positions (flat, ascending) and input maps of rows x cols."""
    outputs, own = shape[0], shape[1]
    kernel, stride, dilation = geometry.kernel, geometry.stride, geometry.dilation
    out_rows, out_cols = geometry.output_size(rows, cols)
    plane_rows, plane_cols = (
        out + dilation[axis] * (kernel[axis] - 1) // stride[axis] for axis, out in enumerate((out_rows, out_cols))
    )
    flat = where.long()
    tap = flat % (kernel[0] * kernel[1])
    channel = flat // (kernel[0] * kernel[1])
    output, channel = channel // own, channel % own
    channel = channel + output // (outputs // geometry.groups) * own
    row, col = tap // kernel[1] * dilation[0], tap % kernel[1] * dilation[1]
    phase = row % stride[0] * stride[1] + col % stride[1]
    place = row // stride[0] * plane_cols + col // stride[1]
    offsets = ((channel * math.prod(stride) + phase) * plane_rows * plane_cols + place).to(torch.int32)
    begins = torch.searchsorted(output, torch.arange(outputs + 1))
    maps = (own * geometry.groups, outputs, rows, cols, out_rows, out_cols)
    sizes = (*maps, *stride, *geometry.padding[:2], plane_rows, plane_cols)
    return Pixels(sizes, begins, offsets, (outputs, out_rows, out_cols))


def fits(shape: tuple[int, ...], geometry: Geometry, rows: int, cols: int) -> bool:
    """Whether places in the packed input are small enough for the kernels' numbers."""
    padded = (rows + sum(geometry.padding[::2]) + geometry.stride[0]) * (
        cols + sum(geometry.padding[1::2]) + geometry.stride[1]
    )
    return shape[1] * geometry.groups * padded < 2**31
