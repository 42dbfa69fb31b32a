"""Random sparse layers against dense double-precision torch, element by element within a rounding bound.

Run as a program it checks seeds with other settings than the tests' own, and says what it used:

    REGROW_ISA=generic python -m tests.execution.bounds --threads 2 --first 0 --cases 50
"""

import argparse
import contextlib
import itertools
import json

import torch

from regrow import native
from regrow.execution import SparsePattern
from regrow.execution.kernels import ops, passes
from regrow.execution.kernels.layout import is_chwn
from tests.execution.cases import dense, random_case, tensors

FACTOR = 24  # elements may err by FACTOR * eps * (|w| * |x|): far below the worst case n * eps
EPS = torch.finfo(torch.float32).eps
SHARED_WORK, SHARED_VALUES = 2**19, 2**17  # multiply-adds of a pass, values of a gradient, that several threads share


def reference(x, weight, bias, grad, geometry):
    """Output and gradients of input, weight and bias in double precision."""
    x, weight = (t.double().requires_grad_() for t in (x, weight))
    y = dense(x, weight, None if bias is None else bias.double(), geometry)
    dbias = grad.double().sum((0, 2, 3))
    if y.numel() == 0:
        return y.detach(), torch.zeros_like(x), torch.zeros_like(weight), dbias
    return y.detach(), *torch.autograd.grad(y, (x, weight), grad.double()), dbias


def assert_within(actual, expected, magnitude, name=""):
    """|actual - expected| <= FACTOR * eps * magnitude everywhere."""
    assert actual.shape == expected.shape, name
    excess = (actual.double() - expected).abs() - FACTOR * EPS * magnitude
    assert excess.numel() == 0 or excess.max() <= 1e-30, f"{name} is {float(excess.max())} beyond its bound"


def gradient_mask(case, mask):
    """None, or for every third case the mask and more."""
    if case.seed % 3:
        return None
    return mask | (torch.rand(mask.shape, generator=torch.Generator().manual_seed(case.seed + 2)) < 0.3)


@contextlib.contextmanager
def using(threads):
    """So many threads inside, the former number afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def native_passes(x, weight, bias, grad, pattern):
    """Output and gradients as a training step computes them."""
    y, present = passes.forward(x, weight, bias, pattern)
    dw = torch.zeros_like(weight)
    dx, dbias = passes.backward(x, grad, present, pattern, dw, wants_bias=True)
    return y, dx, dw, dbias


def check_case(seed, threads=1):
    """Raise unless every element of a random layer's output and gradients is within the bound; returns the weight gradient."""
    case = random_case(seed)
    x, weight, bias, grad, mask = tensors(case)
    wanted = gradient_mask(case, mask)
    pattern = SparsePattern(mask, case.geometry, wanted)
    wanted = mask if wanted is None else wanted
    with using(threads):
        y, dx, dw, dbias = native_passes(x, weight, bias, grad, pattern)
        assert torch.equal(ops._forward(x, weight, bias, *pattern.operands()), y)
        assert torch.equal(
            ops._input_gradient(grad, weight, *pattern.operands("input_gradient"), case.rows, case.cols), dx
        )
        # Other lists, and so another order of sums.
        alone = ops._weight_gradient(x, grad, *pattern.operands("weight_gradient"))
    assert is_chwn(y)
    assert is_chwn(dx)
    assert (dw[~wanted] == 0).all()
    present = weight * mask
    expected = reference(x, present, bias, grad, case.geometry)
    bounds = reference(x.abs(), present.abs(), None if bias is None else bias.abs(), grad.abs(), case.geometry)
    for name, actual, value, bound in zip(("y", "dx", "dw", "db"), (y, dx, dw, dbias), expected, bounds, strict=True):
        assert_within(actual, value * wanted if actual is dw else value, bound, f"{name} of seed {seed}")
    assert (alone[~wanted] == 0).all()
    assert_within(alone, expected[2] * wanted, bounds[2], f"dw alone of seed {seed}")
    return dw


def shares(seed):
    """Whether several threads share a case's passes, and its bias gradient."""
    case = random_case(seed)
    rows, cols = case.geometry.output_size(case.rows, case.cols)
    values = case.samples * case.out_channels * rows * cols
    return case.work() * case.density >= SHARED_WORK, values >= SHARED_VALUES


def split(seed, threads):
    """Check a case; whether these threads added up its weight gradient in another order than one thread does."""
    return not torch.equal(check_case(seed, threads), check_case(seed))


def main():
    """Check `cases` seeds from `first` on; with several threads only cases that these share."""
    parser = argparse.ArgumentParser()
    for option, default in (("--threads", 1), ("--first", 0), ("--cases", 50)):
        parser.add_argument(option, type=int, default=default)
    options = parser.parse_args()
    seeds = (seed for seed in itertools.count(options.first) if options.threads == 1 or any(shares(seed)))
    seeds = list(itertools.islice(seeds, options.cases))
    torch.set_num_threads(1)  # for the reference: threads that wait for each other slow a busy machine down
    report = {"isa": native.instruction_set(), "cases": len(seeds)}
    report["split"] = sum(split(seed, options.threads) for seed in seeds)
    report["passes"], report["biases"] = (sum(shared) for shared in zip(*map(shares, seeds), strict=True))
    print(json.dumps(report))


if __name__ == "__main__":
    main()
