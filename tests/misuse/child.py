"""Processes of their own, for what may crash."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def python(*arguments, timeout=300):
    """Run `python ARGUMENTS` from the project's root; returns the finished process."""
    path = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
    environment = os.environ | {"PYTHONPATH": path, "OMP_WAIT_POLICY": "passive", "PYTHONFAULTHANDLER": "1"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, timeout=timeout)
