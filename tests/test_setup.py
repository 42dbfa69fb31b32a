"""Without a compiler the package installs and works masked, and says what is missing."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

USE = """
import torch
import regrow
from regrow.cli.main import main
from regrow.execution import available

assert not available()
model = torch.nn.Linear(20, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
handle = regrow.sparsify(model, optimizer, density=0.1, steps=4, update_every=2)
for _ in range(4):
    optimizer.zero_grad()
    model(torch.randn(8, 20)).square().mean().backward()
    optimizer.step()
assert int(model.weight.count_nonzero()) == 20
print(regrow.__file__)
main(["doctor"])
"""


@pytest.fixture
def sources(tmp_path):
    """A copy of what the package is built from, without anything that was built."""
    built = shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", tmp_path / "copy" / "src", ignore=built)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / "copy" / name)
    return tmp_path / "copy"


def python(*arguments, folder, **variables):
    environment = {**os.environ, "COLUMNS": "200", **variables}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.deep
def test_without_a_compiler_the_package_builds_and_works_masked(sources):
    pytest.importorskip("setuptools")
    build = ["setup.py", "build", "--build-lib", "lib"]
    done = python(*build, folder=sources, CC="false", CXX="false", LDSHARED="false", LDCXXSHARED="false")
    assert 'building extension "regrow._kernels" failed' in done.stdout + done.stderr
    package = sources / "lib" / "regrow"
    assert (package / "handle.py").is_file()
    assert not list(package.rglob("*.so"))
    output = python("-c", USE, folder=sources.parent, PYTHONPATH=str(package.parent)).stdout
    assert str(package) in output, "the copy was tested"
    assert "not built: sparse execution is off, masked works (needs a C++17 compiler)" in output
