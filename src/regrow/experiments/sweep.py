"""Run a grid: side by side, resumable, failures never fatal for the rest.

A finished run is never repeated and a killed one continues from its checkpoint, because each run has its own folder named after its
configuration. Rows of finished runs are collected in ``runs.csv``.
"""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from regrow.config import Config, to_toml
from regrow.experiments.grid import Job
from regrow.training.files import write_atomically

COLUMNS = (
    "model", "data", "method", "density", "seed", "epochs", "steps", "execution", "window_tolerance", "options", "scope", "test_error",
    "test_accuracy", "test_top5", "nonzeros", "weights", "seconds", "threads", "processor", "torch", "regrow", "identity",
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """How one job ended; ``error`` is empty for a finished one."""

    job: Job
    seconds: float
    error: str = ""


class Executor(Protocol):
    """Where jobs run: submits a call and returns futures."""

    slots: int

    def submit(self, call: Callable[..., Outcome], *arguments: Any) -> Future[Outcome]: ...  # noqa: D102


class LocalExecutor:
    """Processes on this machine, cores divided between them."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._pool = ThreadPoolExecutor(slots)

    def submit(self, call: Callable[..., Outcome], *arguments: Any) -> Future[Outcome]:
        """Run a call beside the others."""
        return self._pool.submit(call, *arguments)


def sweep(
    jobs: Sequence[Job], folder: Path, executor: Executor, report: Callable[[Outcome, int, int], None] | None = None
) -> list[Outcome]:
    """Run all jobs that are not finished, failed ones once more, and write ``runs.csv``; returns how each ended."""
    folder.mkdir(parents=True, exist_ok=True)
    threads = max(1, (os.cpu_count() or 1) // executor.slots)
    todo = [job for job in jobs if not is_finished(job, folder)]
    outcomes = [Outcome(job, 0.0) for job in jobs if job not in todo]
    done = len(outcomes)
    for attempt in (1, 2):
        failed = []
        for outcome in _run_all(todo, folder, threads, executor):
            if outcome.error and attempt == 1:
                failed.append(outcome.job)
            else:
                outcomes.append(outcome)
                done += 1
            if report is not None:
                report(outcome, done, len(jobs))
            write_rows(jobs, folder)
        todo = failed
    write_rows(jobs, folder)
    return outcomes


def is_finished(job: Job, folder: Path) -> bool:
    """Whether a job's result is there."""
    result = folder / job.key / "result.json"
    return result.is_file() and json.loads(result.read_text())["identity"] == job.config.identity()


def run_job(job: Job, folder: Path, threads: int) -> Outcome:
    """Run one job as ``regrow train`` in a process of its own, with its output in its folder."""
    home = folder / job.key
    home.mkdir(parents=True, exist_ok=True)
    write_atomically(home / "job.toml", to_toml(job.config).encode())
    began = time.monotonic()
    command = [sys.executable, "-m", "regrow", "train", str(home / "job.toml"), "--out", str(home)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    with open(home / "output.txt", "ab") as output:
        code = subprocess.call(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
    seconds = time.monotonic() - began
    if code == 0:
        return Outcome(job, seconds)
    lines = (home / "output.txt").read_text(errors="replace").strip().splitlines()
    return Outcome(job, seconds, f"exit code {code}: {lines[-1] if lines else 'no output'} (see {home / 'output.txt'})")


def rows(jobs: Iterable[Job], folder: Path) -> Iterator[dict[str, Any]]:
    """One row per finished job."""
    for job in jobs:
        if is_finished(job, folder):
            yield _row(job.config, folder / job.key)


def write_rows(jobs: Iterable[Job], folder: Path) -> None:
    """Write ``runs.csv``, in the order of the jobs."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows(jobs, folder))
    write_atomically(folder / "runs.csv", text.getvalue().encode())


def _run_all(jobs: Sequence[Job], folder: Path, threads: int, executor: Executor) -> Iterator[Outcome]:
    pending = {executor.submit(run_job, job, folder, threads) for job in jobs}
    while pending:
        finished, pending = wait(pending, return_when=FIRST_COMPLETED)
        for future in finished:
            yield future.result()


def _row(config: Config, home: Path) -> dict[str, Any]:
    result = json.loads((home / "result.json").read_text())
    environment = json.loads((home / "environment.json").read_text())
    speed = [json.loads(line) for line in (home / "speed.jsonl").read_text().splitlines()]
    sparse = config.sparse
    return {
        "model": config.model,
        "data": config.data.name,
        "method": sparse.method,
        "density": result["density"] if sparse.method == "dense" else sparse.density,
        "seed": config.seed,
        "epochs": config.epochs,
        "steps": result["steps"],
        "execution": sparse.execution,
        "window_tolerance": sparse.window_tolerance,
        "options": json.dumps(sparse.options, sort_keys=True) if sparse.options else "",
        "scope": sparse.scope,
        "test_error": round(result["test_error"], 6),
        "test_accuracy": result["test_accuracy"],
        "test_top5": result["test_top5"],
        "nonzeros": result["nonzeros"],
        "weights": result["weights"],
        "seconds": round(sum(row["seconds"] for row in speed), 2),
        "threads": environment["threads"],
        "processor": environment["processor"],
        "torch": environment["torch"],
        "regrow": environment["regrow"],
        "identity": result["identity"],
    }
