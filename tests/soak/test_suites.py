"""A small sample of every suite."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUITES = ["damage", "hostile", "kills", "nets", "operators"]


@pytest.mark.parametrize("name", SUITES)
def test_a_sample_of_the_suite_finds_nothing(name, tmp_path):
    command = [sys.executable, "-m", "tests.soak", name, "--minutes", "0.03", "--sums", str(tmp_path / "soak.json")]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f" {name} " in done.stdout
    (counts,) = json.loads((tmp_path / "soak.json").read_text()).values()
    assert next(iter(counts.values())) > 0
