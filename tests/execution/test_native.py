"""The native library: built where it can be."""

import ast
import shutil
import subprocess
import sys

import pytest

from regrow.execution import native

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


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler to build the kernels with")
def test_the_kernels_are_built_where_there_is_a_compiler():
    """Tests of kernels are skipped without them, and installation goes on: a mistake in the sources would pass unnoticed."""
    assert native.available()


@pytest.mark.skipif(not native.available() or not sys.platform.startswith("linux"), reason="needs kernels and /proc")
def test_torch_and_the_kernels_share_one_openmp_run_time():
    done = subprocess.run([sys.executable, "-c", BOTH_COMPUTE], capture_output=True, text=True, timeout=300, check=True)
    (file,) = ast.literal_eval(done.stdout)
    assert "torch" in file, "torch brings it; the wheel does not"
