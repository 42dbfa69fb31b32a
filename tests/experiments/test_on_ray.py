"""Sweeps on Ray: the executor with a stand-in, and a real local cluster (deep)."""

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import pytest

from regrow.errors import MissingPackageError, UnreachableError
from regrow.experiments import on_ray
from regrow.experiments.rows import read_runs
from tests.training import tiny


class StandIn:
    """As much of ray as the executor uses."""

    def __init__(self, *nodes):
        self.started, self.stopped, self.asked, self.cancelled = None, False, [], []
        self.resources = nodes or ({"CPU": 8.0},)

    def is_initialized(self):
        return False

    def init(self, **options):
        self.started = options

    def nodes(self):
        return [{"Alive": True, "Resources": resources} for resources in self.resources]

    def wait(self, tasks, num_returns, timeout):
        assert num_returns == len(tasks)
        return tasks[:1], tasks[1:]

    def cancel(self, task):
        self.cancelled.append(task)

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
    assert ray.asked == [{"num_cpus": 4, "num_gpus": 0, "max_retries": 0}]


@pytest.mark.parametrize(
    ("nodes", "cores", "gpus"),
    [
        ([{"CPU": 2.0}, {"CPU": 6.0}, {}], 6, 0),
        ([{"CPU": 2.0, "GPU": 1.0}, {"CPU": 6.0}], 2, 1),
        ([{"memory": 1e9}], 16, 0),  # a head whose workers come when there is work
    ],
)
def test_no_task_asks_for_more_than_a_node_has(monkeypatch, nodes, cores, gpus):
    ray = StandIn(*nodes)
    monkeypatch.setitem(sys.modules, "ray", ray)
    executor = on_ray.RayExecutor(1)
    assert executor.submit(lambda *given: given, "job", "folder", 16).result() == ("job", "folder", cores)
    assert ray.asked == [{"num_cpus": cores, "num_gpus": gpus, "max_retries": 0}]


def test_stop_interrupts_what_still_runs_and_only_once(ray):
    executor = on_ray.RayExecutor(2)
    for number in range(3):
        executor.submit(lambda *given: given, number, "folder", 1)
    executor.stop()
    executor.stop()
    assert len(ray.cancelled) == 2
    assert ray.stopped


def test_an_existing_cluster_is_used(ray, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    on_ray.RayExecutor(16)
    assert ray.started["address"] == "10.0.0.1:6379"


@pytest.mark.parametrize(
    ("address", "said"), [(None, "Ray cannot be started (too slow)"), ("10.0.0.1:6379", "RAY_ADDRESS=10.0.0.1:6379")]
)
def test_a_cluster_that_cannot_be_had_is_one_error_with_the_remedy(ray, monkeypatch, address, said):
    def init(**options):
        raise Exception("too slow")

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if address:
        monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(UnreachableError, match="--on local") as caught:
        on_ray.RayExecutor(2)
    assert said in str(caught.value)


def test_without_ray_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'regrow\[ray\]'"):
        on_ray.RayExecutor(2)


SWEEP = [sys.executable, "-m", "regrow", "sweep", "demo", "--on", "ray"]
TWO_RUNS = ["--jobs", "2", "--grid", "density=0.05,0.1", "--epochs", "20", "--checkpoint_seconds", "0.1"]
with_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")

# Ray takes 15 s to start on an idle machine, and many times that on a busy one.
PATIENCE = 3600


def local():
    """No cluster but one's own, whose tasks do not wait for everything else on the machine."""
    kept = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    return {**kept, "RAY_worker_niceness": "0"}


@pytest.mark.deep
@with_ray
def test_interrupted_runs_on_a_real_cluster_save(tmp_path):
    command = [*SWEEP, "--grid", "density=0.05,0.1", "--epochs", "500", "--checkpoint_seconds", "100000"]
    sweep = subprocess.Popen([*command, "--out", tmp_path], stdout=subprocess.PIPE, text=True, env=local())
    while len(list(tmp_path.glob("*/metrics.jsonl"))) < 2:
        assert sweep.poll() is None, sweep.communicate()[0]
        time.sleep(0.1)
    assert not list(tmp_path.glob("*/checkpoints/step-*"))
    sweep.send_signal(signal.SIGINT)
    output, _ = sweep.communicate(timeout=PATIENCE)
    assert (sweep.returncode, "the same command continues" in output) == (130, True)
    assert len(list(tmp_path.glob("*/checkpoints/step-*"))) == 2


@pytest.mark.deep
@with_ray
def test_a_real_local_cluster_runs_a_grid(tmp_path):
    grid = ["--grid", "density=0.05,0.1", "--grid", "option.prune_rate=0.2,0.5"]
    done = subprocess.run(
        [*SWEEP, *grid, "--epochs", "1", "--out", tmp_path],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=local(),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 of 4 runs finished" in done.stdout
    rows = read_runs(tmp_path / "runs.csv")
    found = {(row["density"], json.loads(row["options"])["prune_rate"]) for row in rows}
    assert found == {(density, rate) for density in ("0.05", "0.1") for rate in (0.2, 0.5)}


def tasks_of_runs(folder):
    """Run folder and process id of each Ray task that waits for a training process under a folder."""
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (place / "cmdline").read_text().split("\0")
            if "regrow.cli.worker" in words and (home := Path(words[-2])).parent == folder:
                parent = int((place / "stat").read_text().rsplit(")", 1)[1].split()[1])
                # Whoever inherits a killed task's child is none of ours.
                if Path(f"/proc/{parent}/comm").read_text().startswith("ray::"):
                    yield home, parent


def kill_a_task(sweep, folder, killed):
    """Kill a task whose run has saved, always of the same run, and note it in ``killed``, process ids with their run."""
    while True:
        assert sweep.poll() is None, sweep.communicate()[0]
        for home, task in tasks_of_runs(folder):
            fresh = task not in killed and home in (killed.values() or [home])
            if fresh and list(home.glob("checkpoints/step-*")):
                killed[task] = home
                os.kill(task, signal.SIGKILL)
                return
        time.sleep(0.05)


@pytest.mark.deep
@with_ray
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
@pytest.mark.parametrize("kills", [1, 2])
def test_a_killed_task_is_tried_once_more_and_ends_with_the_same_bits(tmp_path, kills):
    def start(folder, where):
        command = [*SWEEP[:-1], where, *TWO_RUNS, "--out", folder]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=local())

    sweep, killed = start(tmp_path / "killed", "ray"), {}
    for _ in range(kills):
        kill_a_task(sweep, tmp_path / "killed", killed)
    output, _ = sweep.communicate(timeout=PATIENCE)
    (run,) = set(killed.values())
    assert f"{run.name}: failed, WorkerCrashedError" in output
    assert (sweep.returncode, "2 of 2 runs finished" in output) == ((0, True) if kills == 1 else (1, False)), output
    if kills == 2:
        assert str(run / "output.txt") in output
        again = start(tmp_path / "killed", "ray")
        assert "2 of 2 runs finished" in again.communicate(timeout=PATIENCE)[0]
    start(tmp_path / "whole", "local").communicate(timeout=PATIENCE)
    assert len(read_runs(tmp_path / "killed" / "runs.csv")) == 2
    for whole in tmp_path.glob("whole/lenet300-*"):
        assert tiny.digests(tmp_path / "killed" / whole.name) == tiny.digests(whole)
