"""The native library: built where it can be, described by itself, compared with what Python expects."""

import ast
import ctypes
import os
import shutil
import subprocess
import sys

import pytest
import torch

from regrow import native
from regrow.execution import Geometry, SparsePattern
from regrow.execution.kernels import passes
from regrow.execution.kernels.pattern import KernelPlan, Plans, record_of
from regrow.native import NativeError, records

BOTH_COMPUTE = """
import torch, regrow
from regrow.environment import openmp_run_times
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Linear(256, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
regrow.sparsify(model, optimizer, method="static", density=0.05, scope="dense:@last", execution="sparse")
model(torch.randn(64, 256)).sum().backward()
optimizer.step()
print(openmp_run_times())
"""

built = pytest.mark.skipif(not native.available(), reason="native kernels not built")


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler to build the kernels with")
def test_the_kernels_are_built_where_there_is_a_compiler():
    """Tests of kernels are skipped without them, and installation goes on: a mistake in the sources would pass unnoticed."""
    assert native.available()


def description(change=lambda text: text):
    return change(native.library().regrow_abi().decode())


@built
def test_every_record_is_described():
    names = {line.split()[1] for line in description().splitlines() if line.startswith("record")}
    assert names == {record.__name__ for record in records.RECORDS}


@built
@pytest.mark.parametrize("record", records.RECORDS, ids=lambda record: record.__name__)
def test_reordered_fields_are_refused_at_load(record, monkeypatch):
    first, second, *rest = record._fields_
    other = type(record.__name__, (ctypes.Structure,), {"_fields_": [second, first, *rest]})
    monkeypatch.setattr(native, "RECORDS", (other,))
    with pytest.raises(NativeError, match=f"{record.__name__} is not the one.*build_ext"):
        native.interface(description())


@built
def test_a_library_with_other_records_is_refused():
    with pytest.raises(NativeError, match="SgdStep"):
        native.interface(
            description(lambda text: text.replace("momentum:d:8 dampening:d:16", "dampening:d:8 momentum:d:16"))
        )


@built
def test_a_call_with_the_wrong_number_of_arguments_is_refused():
    with pytest.raises(TypeError, match="arguments"):
        native.call("transpose", torch.float32, torch.zeros(4), 2, 2)


@built
def test_an_unknown_instruction_set_is_refused():
    command = [sys.executable, "-c", "from regrow import native; native.library()"]
    done = subprocess.run(
        command, env={**os.environ, "REGROW_ISA": "avx3"}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode != 0
    assert "unknown instruction set in REGROW_ISA 'avx3'" in done.stderr
    assert "generic" in done.stderr


@built
def test_tables_that_run_everywhere_are_there():
    assert {"generic", "wide"} <= set(native.instruction_sets())
    assert native.instruction_set() in native.instruction_sets()


@built
@pytest.mark.parametrize("use", ["forward", "input_gradient"])
def test_plans_from_rows_and_columns_are_those_from_masks(use):
    """Where weights are stored compactly no dense mask exists."""
    generator = torch.Generator().manual_seed(0)
    pattern = SparsePattern(torch.rand(12, 5, 3, 3, generator=generator) < 0.3, Geometry((3, 3), (2, 2), (1, 1, 1, 1)))
    flat = pattern.mask.flatten(1)
    rows = torch.cat([torch.zeros(1, dtype=torch.int64), flat.sum(1).cumsum(0)])
    columns = flat.nonzero()[:, 1].to(torch.int32)
    x = torch.randn(7, 5, 9, 9, generator=generator)
    weight, grad = torch.randn(pattern.mask.shape, generator=generator), torch.randn(7, 12, 5, 5, generator=generator)

    def result():
        return (
            passes.forward(x, weight, None, pattern)[0]
            if use == "forward"
            else passes.input_gradient(grad, weight, pattern, 9, 9)
        )

    expected = result()
    backward, plans = use == "input_gradient", pattern.support.derive(Plans, Plans)
    plan = KernelPlan(record_of(pattern.shape, pattern.geometry, 9, 9), (rows, columns), backward, torch.float32)
    plans._found = {(pattern.geometry, backward, 9, 9, torch.float32, 0): plan}
    assert torch.equal(result(), expected)
    assert list(plans._found.values()) == [plan]


@built
def test_infinities_that_no_window_reads_do_not_reach_gradients():
    pattern = SparsePattern(torch.ones(3, 2, 3, 3, dtype=torch.bool), Geometry((3, 3), (2, 2)))
    x, grad = torch.randn(4, 2, 12, 12), torch.randn(4, 3, 5, 5)
    x[:, :, 11] = float("inf")  # the last window ends at row 10
    dw = torch.zeros(3, 2, 3, 3)
    passes.weight_gradient(dw, x, grad, pattern)
    assert dw.isfinite().all()
    x[:, :, 10] = float("inf")  # only the last row of kernels reads it
    passes.weight_gradient(dw, x, grad, pattern)
    assert dw[:, :, :2].isfinite().all()
    assert not dw[:, :, 2].isfinite().any()


@pytest.mark.skipif(not native.available() or not sys.platform.startswith("linux"), reason="needs kernels and /proc")
def test_torch_and_the_kernels_share_one_openmp_run_time():
    done = subprocess.run([sys.executable, "-c", BOTH_COMPUTE], capture_output=True, text=True, timeout=300, check=True)
    (file,) = ast.literal_eval(done.stdout)
    assert "torch" in file, "torch brings it; the wheel does not"
