"""Sweeps on Ray: the executor with a stand-in, and a real local cluster (deep)."""

import importlib.util
import os
import subprocess
import sys
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from regrow.errors import ConfigurationError
from regrow.experiments import on_ray
from regrow.experiments.rows import read_runs


class StandIn:
    """As much of ray as the executor uses."""

    def __init__(self):
        self.started, self.stopped, self.asked = None, False, []

    def is_initialized(self):
        return False

    def init(self, **options):
        self.started = options

    def shutdown(self):
        self.stopped = True

    def remote(self, **resources):
        self.asked.append(resources)

        def task(call):
            def run(*arguments):
                future = Future()
                future.set_result(call(*arguments))
                return SimpleNamespace(future=lambda: future)

            return SimpleNamespace(remote=run)

        return task


@pytest.fixture
def ray(monkeypatch):
    stand_in = StandIn()
    monkeypatch.setitem(sys.modules, "ray", stand_in)
    return stand_in


def test_each_task_asks_for_a_core_per_thread(ray, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    executor = on_ray.RayExecutor(2)
    assert ray.started["address"] is None
    assert executor.submit(lambda *given: given, "job", "folder", 4).result() == ("job", "folder", 4)
    assert ray.asked == [{"num_cpus": 4, "max_retries": 0}]
    executor.stop()
    assert ray.stopped


def test_an_existing_cluster_is_used(ray, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    on_ray.RayExecutor(16)
    assert ray.started["address"] == "10.0.0.1:6379"


def test_without_ray_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'regrow\[ray\]'"):
        on_ray.RayExecutor(2)


@pytest.mark.deep
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")
def test_a_real_local_cluster_runs_a_grid(tmp_path):
    grid = ["--grid", "density=0.05,0.1", "--grid", "option.prune_rate=0.2,0.5"]
    command = [
        sys.executable,
        "-m",
        "regrow",
        "sweep",
        "demo",
        *grid,
        "--epochs",
        "1",
        "--on",
        "ray",
        "--out",
        tmp_path,
    ]
    environment = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 of 4 runs finished" in done.stdout
    rows = read_runs(tmp_path / "runs.csv")
    assert {(row["density"], row["options"]) for row in rows} == {
        (density, options) for density in ("0.05", "0.1") for options in ('{"prune_rate": 0.2}', '{"prune_rate": 0.5}')
    }
