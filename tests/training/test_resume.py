"""Killed runs: nothing lost, nothing different, nothing left over."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training.tiny import CASES

ROOT = Path(__file__).parents[2]


def environment(**more):
    return {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", **more}


def kill(case, kills, how, work):
    command = [sys.executable, "-m", "tests.training.killing", case, str(kills), how, str(work)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), cwd=ROOT, timeout=1500)
    logs = "".join(path.read_text()[-2000:] for path in work.glob("*.log"))
    assert done.returncode == 0, done.stderr + logs
    return json.loads(done.stdout)


def check(report, kills):
    assert report["killed"] == kills
    assert report["runs"], "no run came to its end"
    for digests in report["runs"]:
        different = [name for name, digest in report["whole"].items() if digests.get(name) != digest]
        assert not different
        assert digests.keys() == report["whole"].keys()
    assert not report["leftovers"]


def test_five_kills_at_random_instants_change_nothing(tmp_path):
    check(kill("sparse-momentum", 5, "clock", tmp_path), 5)


@pytest.mark.parametrize("case", ["rigl", "top-kast", "linear"])
def test_kills_inside_saves_and_topology_updates_change_nothing(case, tmp_path):
    check(kill(case, 5, "point", tmp_path), 5)


@pytest.mark.deep
def test_fifty_kills_at_random_instants_change_nothing(tmp_path):
    check(kill("rigl", 50, "clock", tmp_path), 50)


@pytest.mark.deep
@pytest.mark.parametrize("case", CASES)
def test_fifty_kills_inside_saves_and_topology_updates_change_nothing(case, tmp_path):
    check(kill(case, 50, "point", tmp_path), 50)
