"""Sparse operators against dense double-precision torch, element by element within a rounding bound."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from regrow import native
from regrow.execution import Geometry, SparsePattern
from regrow.execution.kernels import ops
from tests.execution.bounds import assert_within, check_case, reference
from tests.execution.cases import random_case, tensors

pytestmark = pytest.mark.skipif(not native.available(), reason="native kernels not built")
ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("chunk", range(10))
def test_random_layers(chunk):
    for seed in range(50 * chunk, 50 * chunk + 50):
        check_case(seed)


@pytest.mark.deep
@pytest.mark.parametrize("chunk", range(50))
def test_many_random_layers(chunk):
    for seed in range(10_000 + 100 * chunk, 10_000 + 100 * chunk + 100):
        check_case(seed)


def check_elsewhere(isa, threads, first, cases):
    """Random layers in a process of its own, with another instruction set or more threads than the tests' one."""
    path = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
    environment = {name: value for name, value in os.environ.items() if name != "REGROW_ISA"} | {"PYTHONPATH": path}
    environment |= {"OMP_WAIT_POLICY": "passive"} if isa is None else {"OMP_WAIT_POLICY": "passive", "REGROW_ISA": isa}
    options = (f"--threads={threads}", f"--first={first}", f"--cases={cases}")
    command = [sys.executable, "-m", "tests.execution.bounds", *options]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["isa"] == (isa or native.instruction_set())
    assert report["cases"] == cases
    return report


def check_threads(isa, first, cases):
    """Two threads share all of these layers, as the weight gradients' last bits show."""
    report = check_elsewhere(isa, 2, first, cases)
    assert report["split"] >= report["passes"] // 2 > 0
    assert report["biases"] > 0


OTHERS = [isa for isa in native.instruction_sets() if isa != native.instruction_set()] if native.available() else []


@pytest.mark.parametrize("isa", OTHERS)
def test_random_layers_with_other_kernels(isa):
    assert check_elsewhere(isa, 1, first=500, cases=60)["split"] == 0


@pytest.mark.parametrize("isa", ["generic", None])
def test_random_layers_with_two_threads(isa):
    check_threads(isa, first=1000, cases=24)


@pytest.mark.deep
@pytest.mark.parametrize("isa", [*OTHERS, None])
def test_many_random_layers_elsewhere(isa):
    check_elsewhere(isa, 1, first=20_000, cases=1000)
    check_threads(isa, first=30_000, cases=200)


@pytest.mark.parametrize("shape", [(300, 784), (1100, 1300)])
def test_large_linear_crosses_blocks(shape):
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(0)) < 0.05
    pattern = SparsePattern(mask)
    generator = torch.Generator().manual_seed(1)
    x, grad = (
        torch.randn(100, shape[1], 1, 1, generator=generator),
        torch.randn(100, shape[0], 1, 1, generator=generator),
    )
    weight = torch.randn(shape, generator=generator) * mask
    w4 = weight[:, :, None, None]
    expected = reference(x, w4, None, grad, Geometry())
    bounds = reference(x.abs(), w4.abs(), None, grad.abs(), Geometry())
    assert_within(ops._forward(x, weight, None, *pattern.operands()), expected[0], bounds[0])
    assert_within(ops._input_gradient(grad, weight, *pattern.operands("input_gradient"), 1, 1), expected[1], bounds[1])
    assert_within(
        ops._weight_gradient(x, grad, *pattern.operands("weight_gradient")),
        expected[2][:, :, 0, 0] * mask,
        bounds[2][:, :, 0, 0],
    )


@pytest.mark.parametrize("seed", [1, 3, 11, 27, 41])
def test_gradcheck_in_double_precision(seed):
    case = random_case(seed)
    x, weight, bias, _, mask = tensors(case, torch.float64)
    x, pattern = x[:2], SparsePattern(mask, case.geometry)
    leaves = [x.requires_grad_(), (weight * mask).requires_grad_()] + ([bias.requires_grad_()] if case.bias else [])

    def function(x, weight, bias=None):
        return torch.ops.regrow.sparse_forward(x, torch.where(mask, weight, 0.0), bias, *pattern.operands())

    assert torch.autograd.gradcheck(function, leaves, fast_mode=True)


def test_opcheck():
    pattern = SparsePattern(torch.rand(8, 6, 3, 3) < 0.3, Geometry((3, 3), (2, 2), (1, 1, 1, 1)))
    x, grad, weight = torch.randn(4, 6, 5, 5), torch.randn(4, 8, 3, 3), torch.randn(8, 6, 3, 3)
    leaves = [t.clone().requires_grad_() for t in (x, weight, torch.randn(8))]
    check = torch.library.opcheck
    check(torch.ops.regrow.sparse_forward.default, (*leaves, *pattern.operands()))
    check(torch.ops.regrow.sparse_forward.default, (*leaves, *pattern.operands(), True))
    check(torch.ops.regrow.sparse_input_gradient.default, (grad, weight, *pattern.operands("input_gradient"), 5, 5))
    check(torch.ops.regrow.sparse_weight_gradient.default, (x, grad, *pattern.operands("weight_gradient")))
    check(
        torch.ops.regrow.sparse_weight_gradient_.default,
        (torch.zeros(8, 6, 3, 3), x, grad, *pattern.operands("weight_gradient")),
    )


def test_flop_counter_counts_present_weights():
    mask = torch.zeros(8, 6, 3, 3, dtype=torch.bool)
    mask[0, :, 1, 1] = True
    pattern = SparsePattern(mask, Geometry((3, 3), (1, 1), (1, 1, 1, 1)))
    x, weight = torch.randn(4, 6, 5, 5, requires_grad=True), torch.randn(8, 6, 3, 3, requires_grad=True)
    with torch.utils.flop_counter.FlopCounterMode(display=False) as counter:
        torch.ops.regrow.sparse_forward(x, weight, None, *pattern.operands()).sum().backward()
    assert counter.get_total_flops() == 3 * 2 * 6 * 4 * 25


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_repeats_bit_for_bit(threads):
    case = random_case(6)
    x, weight, bias, grad, mask = tensors(case)
    x, grad = x.repeat(5, 1, 1, 1), grad.repeat(5, 1, 1, 1)
    pattern = SparsePattern(mask, case.geometry)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        runs = [
            (
                ops._forward(x, weight, bias, *pattern.operands()),
                ops._weight_gradient(x, grad, *pattern.operands("weight_gradient")),
            )
            for _ in range(3)
        ]
    finally:
        torch.set_num_threads(before)
    for y, dw in runs[1:]:
        assert torch.equal(y, runs[0][0])
        assert torch.equal(dw, runs[0][1])


def test_any_strides():
    pattern = SparsePattern(torch.rand(8, 6, 3, 3) < 0.4, Geometry((3, 3), (1, 1), (1, 1, 1, 1)))
    x, weight = torch.randn(5, 6, 7, 7), torch.randn(8, 6, 3, 3)
    expected = ops._forward(x, weight, None, *pattern.operands())
    views = (
        x.to(memory_format=torch.channels_last),
        torch.randn(5, 12, 7, 14)[:, ::2, :, ::2].copy_(x),
        x.flip(0).flip(0),
    )
    for view in views:
        assert torch.equal(
            ops._forward(view, weight.transpose(0, 1).contiguous().transpose(0, 1), None, *pattern.operands()), expected
        )
    spread = torch.ones(1, 1, 1, 1).expand(5, 8, 7, 7)
    assert torch.equal(
        ops._weight_gradient(x, spread, *pattern.operands("weight_gradient")),
        ops._weight_gradient(x, spread.clone(), *pattern.operands("weight_gradient")),
    )


@pytest.mark.parametrize(
    ("x", "weight", "error", "message"),
    [
        (torch.randn(2, 6, 5, 5).half(), torch.randn(8, 6, 3, 3), TypeError, "float32 or float64"),
        (torch.randn(2, 6, 5, 5), torch.randn(8, 6, 3, 3).double(), TypeError, "weight must be"),
        (torch.randn(2, 7, 5, 5), torch.randn(8, 6, 3, 3), ValueError, "expected \\(N, 6"),
        (torch.randn(2, 6, 5), torch.randn(8, 6, 3, 3), ValueError, "expected \\(N, 6"),
        (torch.randn(2, 6, 5, 5), torch.randn(8, 6, 3), ValueError, "weight has shape"),
        (
            torch.randn(2, 6, 1, 5),
            torch.randn(8, 6, 3, 3),
            ValueError,
            "needs maps of at least 3 x 3 pixels, got 1 x 5",
        ),
    ],
)
def test_bad_arguments_raise(x, weight, error, message):
    pattern = SparsePattern(torch.ones(8, 6, 3, 3, dtype=torch.bool), Geometry((3, 3)))
    with pytest.raises(error, match=message):
        torch.ops.regrow.sparse_forward(x, weight, None, *pattern.operands())


def test_bad_gradient_shape_and_pattern_raise():
    pattern = SparsePattern(torch.ones(8, 6, 3, 3, dtype=torch.bool), Geometry((3, 3)))
    x, weight = torch.randn(2, 6, 5, 5), torch.randn(8, 6, 3, 3)
    with pytest.raises(ValueError, match="grad has shape"):
        torch.ops.regrow.sparse_weight_gradient(x, torch.randn(2, 8, 5, 5), *pattern.operands("weight_gradient"))
    with pytest.raises(ValueError, match="grad has shape"):
        torch.ops.regrow.sparse_input_gradient(
            torch.randn(2, 8, 3, 3), weight, *pattern.operands("input_gradient"), 6, 6
        )
    with pytest.raises(ValueError, match="has 54 bytes, got 53"):
        torch.ops.regrow.sparse_forward(x, weight, None, torch.zeros(53, dtype=torch.uint8), *pattern.operands()[1:])
    with pytest.raises(TypeError, match="a vector of uint8"):
        torch.ops.regrow.sparse_forward(x, weight, None, torch.zeros(54), *pattern.operands()[1:])
    flat = SparsePattern(torch.ones(8, 6, dtype=torch.bool)).operands("input_gradient")
    with pytest.raises(ValueError, match="cannot have"):
        torch.ops.regrow.sparse_input_gradient(torch.randn(2, 8), torch.randn(8, 6), *flat, 3, 1)
