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


TASKS = [
    "sparse-momentum:clock:5",
    "whole-momentum:ask:4",
    "rigl:point:5",
    "top-kast:point:5",
    "linear:point:5",
]


def kill(work, *tasks):
    command = [sys.executable, "-m", "tests.training.killing", str(work), *tasks]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), cwd=ROOT, timeout=3000)
    logs = "".join(path.read_text()[-2000:] for path in work.rglob("*.log"))
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


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    return kill(tmp_path_factory.mktemp("kills"), *TASKS)


@pytest.mark.parametrize("task", TASKS)
def test_kills_at_random_instants_and_inside_saves_and_updates_change_nothing(task, reports):
    check(reports[task], int(task.split(":")[2]))


@pytest.mark.deep
@pytest.mark.parametrize("task", ["rigl:clock:10", *(f"{case}:point:10" for case in CASES)])
def test_more_kills_change_nothing(task, tmp_path):
    """Ten of each: hundreds, over more methods and executions, are counted by ``make soak``."""
    check(kill(tmp_path, task)[task], 10)
