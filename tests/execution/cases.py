"""Random sparse layers: one generator for every kernel test."""

import random
from dataclasses import dataclass

import torch
from torch import nn

from regrow.execution import Geometry


@dataclass(frozen=True)
class Case:
    samples: int
    in_channels: int
    out_channels: int
    rows: int
    cols: int
    geometry: Geometry
    density: float
    bias: bool
    seed: int

    def work(self):
        """Multiply-adds of the dense layer."""
        rows, cols = self.geometry.output_size(self.rows, self.cols)
        weights = (
            self.out_channels
            * self.in_channels
            // self.geometry.groups
            * self.geometry.kernel[0]
            * self.geometry.kernel[1]
        )
        return weights * rows * cols * self.samples

    def mask(self):
        generator = torch.Generator().manual_seed(self.seed)
        shape = (self.out_channels, self.in_channels // self.geometry.groups, *self.geometry.kernel)
        mask = torch.rand(shape, generator=generator) < self.density
        mask[torch.rand(shape[0], generator=generator) < 0.2] = False  # empty rows
        mask[:, torch.rand(shape[1], generator=generator) < 0.2] = False  # empty columns
        return mask


def random_case(seed):
    pick = random.Random(seed)
    groups = pick.choice((1, 1, 1, 2, 3))
    while True:
        kernel = pick.choice(((1, 1), (3, 3), (3, 3), (5, 5), (1, 3), (2, 4), (7, 1)))
        geometry = Geometry(
            kernel=kernel,
            stride=pick.choice(((1, 1), (1, 1), (2, 2), (1, 2), (3, 2))),
            padding=tuple(pick.choice((0, kernel[axis % 2] // 2, pick.randint(0, 4))) for axis in range(4)),
            dilation=pick.choice(((1, 1), (1, 1), (2, 1), (2, 3))),
            groups=groups,
        )
        rows, cols = pick.choice(
            ((1, 1), (4, 4), (pick.randint(1, 9), pick.randint(1, 9)), (pick.randint(8, 17), pick.randint(8, 17)))
        )
        try:
            geometry.output_size(rows, cols)
        except ValueError:
            continue
        case = Case(
            samples=pick.choice((0, 1, 2, 7, 8, 9, 16, 33, 70)),
            in_channels=groups * pick.choice((1, 2, 5, 17, 40)),
            out_channels=groups * pick.choice((1, 3, 8, 21)),
            rows=rows,
            cols=cols,
            geometry=geometry,
            density=pick.choice((0.0, 0.05, 0.2, 0.5, 1.0)),
            bias=pick.random() < 0.5,
            seed=seed,
        )
        if case.work() < 4e6:  # the dense double-precision reference must stay quick
            return case


def dense(x, weight, bias, geometry):
    """The layer in plain torch."""
    top, left, bottom, right = geometry.padding
    x = nn.functional.pad(x, (left, right, top, bottom))
    return nn.functional.conv2d(x, weight, bias, geometry.stride, 0, geometry.dilation, geometry.groups)


def tensors(case, dtype=torch.float32):
    """x, weight (garbage outside the mask), bias, grad and the mask of a case."""
    generator = torch.Generator().manual_seed(case.seed + 1)
    mask = case.mask()
    out = case.geometry.output_size(case.rows, case.cols)
    x = torch.randn(case.samples, case.in_channels, case.rows, case.cols, generator=generator, dtype=dtype)
    weight = torch.randn(mask.shape, generator=generator, dtype=dtype)
    bias = torch.randn(case.out_channels, generator=generator, dtype=dtype) if case.bias else None
    grad = torch.randn(case.samples, case.out_channels, *out, generator=generator, dtype=dtype)
    return x, weight, bias, grad, mask
