"""Operators called with anything: `python -m tests.misuse.operators FIRST COUNT` writes each call's number before it is made.

A call that ends the process is the last one written. One that returns must have used shapes that fit.
"""

import random
import sys

import torch

import regrow.execution
import regrow.shipping.layer  # noqa: F401  (and that of frozen layers)
from regrow.execution import Geometry, SparsePattern

REFUSED = (ValueError, TypeError, RuntimeError, NotImplementedError)
DTYPES = [torch.float32] * 8 + [torch.float64] * 3 + [torch.float16, torch.bfloat16, torch.int64, torch.bool]
DIMENSION = [0, 1, 1, 2, 3, 4, 5, 8]


def odd_tensor(rng, shape):
    """A tensor of about this shape: other sizes, types, strides and kinds now and then."""
    shape = list(shape)
    if rng.random() < 0.25 and shape:
        shape[rng.randrange(len(shape))] = rng.choice(DIMENSION)
    if rng.random() < 0.1:
        shape = [rng.choice(DIMENSION) for _ in range(rng.randrange(6))]
    tensor = torch.ones(shape).to(rng.choice(DTYPES) if rng.random() < 0.3 else torch.float32)
    kind = rng.random()
    if kind < 0.05 and tensor.dim() > 1:
        return tensor.transpose(0, 1)
    if kind < 0.1:
        return torch.ones(()).to(tensor.dtype).expand(shape)
    if kind < 0.13:
        return tensor.to("meta")
    if kind < 0.16 and tensor.dim() == 2:
        return tensor.to_sparse()
    if kind < 0.19 and tensor.is_floating_point():
        return torch._neg_view(tensor)
    return tensor.requires_grad_() if kind > 0.9 and tensor.is_floating_point() else tensor


def odd_number(rng, number):
    return rng.choice([0, -1, 1, 2, 7, 31, 2**31, 2**31 - 1, 2**40]) if rng.random() < 0.04 else number


def layer(rng):
    """Shapes that fit: the weight, the geometry, an input and the output of a small layer."""
    linear = rng.random() < 0.4
    groups = 1 if linear else rng.choice([1, 1, 2])
    out, into = groups * rng.randrange(1, 5), rng.randrange(1, 5)
    kernel, stride, pad, dilation = (
        (1, 1) if linear else tuple(rng.choice(options) for _ in range(2))
        for options in ([1, 2, 3], [1, 2], [0, 1], [1, 2])
    )
    pad = (0, 0) if linear else pad
    geometry = Geometry(kernel, stride, (*pad, *pad), dilation, groups)
    shape = (out, into) if linear else (out, into, *kernel)
    maps = (rng.randrange(1, 3), into * groups)
    if linear and rng.random() < 0.7:
        return shape, geometry, maps, (maps[0], out), (1, 1)
    size = (rng.randrange(5, 9), rng.randrange(5, 9))
    return shape, geometry, (*maps, *size), (maps[0], out, *geometry.output_size(*size)), size


def call(seed):
    """One call; returns its name and whether it was refused."""
    rng = random.Random(seed)
    shape, geometry, x, y, size = layer(rng)
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < rng.random()
    pattern = SparsePattern(mask, geometry)
    support, reach, dims, numbers = pattern.operands()
    if rng.random() < 0.1:
        support = odd_tensor(rng, support.shape).to(torch.uint8)
    dims, numbers = [odd_number(rng, n) for n in dims], [odd_number(rng, n) for n in numbers]
    name = rng.choice(
        ["sparse_forward", "sparse_input_gradient", "sparse_weight_gradient", "sparse_weight_gradient_", "frozen_layer"]
    )
    weight = (pattern.support.nnz,) if rng.random() < 0.3 else shape
    rows, cols = (odd_number(rng, n) for n in size)
    where = pattern.support.positions + rng.choice([0] * 30 + [1, -1, 99])
    arguments = {
        "sparse_forward": lambda: (x, weight, (shape[0],), support, reach, dims, numbers, rng.random() < 0.3),
        "sparse_input_gradient": lambda: (y, weight, support, dims, numbers, rows, cols),
        "sparse_weight_gradient": lambda: (x, y, support, dims, numbers),
        "sparse_weight_gradient_": lambda: (shape, x, y, support, dims, numbers),
        "frozen_layer": lambda: (x, (pattern.support.nnz,), where, (shape[0],), dims, numbers, rng.random() < 0.3),
    }[name]()
    given = [odd_tensor(rng, value) if isinstance(value, tuple) else value for value in arguments]
    try:
        found = getattr(torch.ops.regrow, name)(*given)
        if isinstance(found, torch.Tensor) and found.requires_grad:
            found.sum().backward()
    except REFUSED:
        return name, True
    return name, False


def main(first, count):
    refused = 0
    for seed in range(first, first + count):
        print(seed, flush=True)
        refused += call(seed)[1]
    print(f"done {count} refused {refused}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
