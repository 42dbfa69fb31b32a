"""Run a grid: side by side, resumable, failures never fatal for the rest.

A finished run is never repeated and a killed one continues from its checkpoint, because each run has its own folder named after its
configuration. Rows of finished runs are collected in ``runs.csv``.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import Any, Protocol

from regrow.config import to_toml
from regrow.environment import cores
from regrow.errors import DivergenceError
from regrow.experiments.grid import Job
from regrow.experiments.rows import add_runs, ending_of, row_of
from regrow.files import write_atomically
from regrow.signals import on_request_to_end
from regrow.training.folder import RunFolder
from regrow.training.forms import is_metrics_row
from regrow.training.ledger import last_row

ATTEMPTS = 2
OUTPUT = "output.txt"
TICK_SECONDS = 2.0
STOP_SECONDS = 0.1


@dataclass(frozen=True)
class Outcome:
    """How one job ended: ``error`` is empty for a finished one, ``diverged`` says where and how the run did."""

    job: Job
    seconds: float
    error: str = ""
    diverged: str = ""


class Run(Protocol):
    """`run_job`, or what stands for it."""

    def __call__(self, job: Job, folder: Path, threads: int, gpu: str | None = None) -> Outcome: ...  # noqa: D102


class Executor(Protocol):
    """Where jobs run: submits calls of `run_job`, each with so many threads, and returns futures."""

    slots: int

    def submit(self, call: Run, job: Job, folder: Path, threads: int) -> Future[Outcome]: ...  # noqa: D102
    def stop(self) -> None: ...  # noqa: D102


class Watcher(Protocol):
    """Who watches a sweep, or several in a row; ``begun`` and ``running`` are the work (`Job.work`) done by unfinished runs."""

    def started(self, jobs: Sequence[Job], todo: Sequence[Job], begun: float = 0.0, at_most: bool = False) -> None: ...  # noqa: D102
    def skipped(self, jobs: Sequence[Job], why: str) -> None: ...  # noqa: D102
    def ended(self, outcome: Outcome, again: bool) -> None: ...  # noqa: D102
    def tick(self, running: float) -> None: ...  # noqa: D102


class LocalExecutor:
    """Processes on this machine; a thread each waits for them. GPUs are dealt out to those that run at once."""

    def __init__(self, slots: int, gpus: Sequence[str] = ()) -> None:
        self.slots = slots
        self._pool = ThreadPoolExecutor(slots)
        self._futures: list[Future[Outcome]] = []
        self._free: SimpleQueue[str | None] = SimpleQueue()
        for _, gpu in zip(range(slots), itertools.cycle(gpus or (None,)), strict=False):
            self._free.put(gpu)

    def submit(self, call: Run, job: Job, folder: Path, threads: int) -> Future[Outcome]:
        """Run a call beside the others."""
        self._futures.append(self._pool.submit(self._run, call, job, folder, threads))
        return self._futures[-1]

    def _run(self, call: Run, job: Job, folder: Path, threads: int) -> Outcome:
        gpu = self._free.get()
        try:
            return call(job, folder, threads, gpu)
        finally:
            self._free.put(gpu)

    def stop(self) -> None:
        """Start nothing more, ask what runs to save and stop, and wait for it."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        asked: set[subprocess.Popen] = set()
        # A call may be about to start its process: look again until all have returned.
        while running := [future for future in self._futures if not future.done()]:
            for child in set(_CHILDREN) - asked:
                child.terminate()
                asked.add(child)
            wait(running, timeout=STOP_SECONDS)
        self._pool.shutdown(wait=True)


# Set by a signal that asks this process to stop. The KeyboardInterrupt that it raises is lost where Python is in a destructor just then.
_ASKED = threading.Event()


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM interrupts like Ctrl-C, so that runs save; neither is ever lost."""
    with on_request_to_end(_interrupt):
        try:
            yield
        finally:
            _ASKED.clear()


def _interrupt(number: int, frame: FrameType | None) -> None:
    _ASKED.set()
    raise KeyboardInterrupt


# Processes of run_job calls in this process, for stop().
_CHILDREN: set[subprocess.Popen] = set()


def threads_per_job(slots: int, jobs: int) -> int:
    """Cores divided between the runs that go on at once.

    It depends on the whole grid, not on what is left of it: the number of threads decides the last bits of a result.
    """
    return max(1, cores() // max(1, min(slots, jobs)))


def announce(jobs: Sequence[Job], folder: Path, watcher: Watcher, at_most: bool = False) -> None:
    """Tell the watcher which of the runs are left and how far they have come; ``at_most`` if not all will be needed."""
    todo = unfinished(jobs, folder)
    watcher.started(_unique(jobs), todo, _done(todo, folder), at_most)


def sweep(
    jobs: Sequence[Job], folder: Path, executor: Executor, watcher: Watcher | None = None, announced: bool = False
) -> list[Outcome]:
    """Run all jobs that are not finished, failed ones once more, and add them to ``runs.csv``; returns how each ended.

    ``announced`` says that the watcher knows of these jobs, as part of more.
    Interrupted (KeyboardInterrupt), it lets the runs save, and raises.
    """
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    # Two equal jobs would share a folder: they are one run.
    jobs = _unique(jobs)
    todo = unfinished(jobs, folder)
    ended = {job.key: _earlier(job, folder) for job in jobs if job not in todo}
    add_runs(folder / "runs.csv", rows(jobs, folder))
    if watcher is not None and not announced:
        announce(jobs, folder, watcher)
    threads = threads_per_job(executor.slots, len(jobs))
    try:
        for attempt in range(1, ATTEMPTS + 1):
            for outcome in _run_all(todo, folder, threads, executor, watcher):
                again = bool(outcome.error) and attempt < ATTEMPTS
                ended[outcome.job.key] = outcome
                if not outcome.error:
                    add_runs(folder / "runs.csv", rows([outcome.job], folder))
                if watcher is not None:
                    watcher.ended(outcome, again)
            todo = [job for job in todo if ended[job.key].error]
    except BaseException:
        executor.stop()
        raise
    return [ended[job.key] for job in jobs]


def _earlier(job: Job, folder: Path) -> Outcome:
    """How a job ended in an earlier sweep: only notes of divergence have a message."""
    ending = ending_of(job.config, folder / job.key) or {}
    return Outcome(job, 0.0, diverged=ending.get("message", ""))


def is_finished(job: Job, folder: Path) -> bool:
    """Whether a job has ended, with a result or by divergence, which would come again."""
    return ending_of(job.config, folder / job.key) is not None


def unfinished(jobs: Iterable[Job], folder: Path) -> list[Job]:
    """The jobs that have not ended, equal ones once."""
    return [job for job in _unique(jobs) if not is_finished(job, folder)]


def _unique(jobs: Iterable[Job]) -> list[Job]:
    return list({job.key: job for job in jobs}.values())


def run_job(job: Job, folder: Path, threads: int, gpu: str | None = None) -> Outcome:
    """Run one job as ``regrow train`` in a process of its own, with its output in its folder, on one GPU if that is given.

    Interrupted, it lets the run save first.
    """
    home = folder / job.key
    home.mkdir(parents=True, exist_ok=True)
    write_atomically(home / "job.toml", to_toml(job.config).encode())
    began = time.monotonic()
    command = [sys.executable, "-m", "regrow.cli.worker", str(home)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    if gpu is not None:
        environment["CUDA_VISIBLE_DEVICES"] = gpu
    with open(home / OUTPUT, "ab") as output:
        # A session of its own: Ctrl-C reaches the sweep alone, which then asks each run once.
        child = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
        _CHILDREN.add(child)
        try:
            code = _end_of(child)
        except KeyboardInterrupt:
            child.terminate()
            child.wait()
            raise
        finally:
            _CHILDREN.discard(child)
    seconds = time.monotonic() - began
    if code == 0 and is_finished(job, folder):
        return Outcome(job, seconds)
    lines = (home / OUTPUT).read_text(errors="replace").strip().splitlines()
    last = lines[-1] if lines else "no output"
    if code == DivergenceError.status:
        return Outcome(job, seconds, diverged=last)
    return Outcome(job, seconds, f"exit code {code}: {last}")


def _end_of(child: subprocess.Popen) -> int:
    """Wait for its exit code, looking up now and then: Ray interrupts its tasks by a flag, not by a signal that ends waiting."""
    while True:
        with suppress(subprocess.TimeoutExpired):
            return child.wait(TICK_SECONDS)


def rows(jobs: Iterable[Job], folder: Path) -> Iterator[dict[str, Any]]:
    """One row per job that ended."""
    for job in jobs:
        if is_finished(job, folder):
            yield row_of(job.config, folder / job.key)


def fraction(job: Job, folder: Path) -> float:
    """How far an unfinished run has come, from its last row of metrics."""
    last, config = last_row(RunFolder(folder / job.key).metrics, is_metrics_row), job.config
    if last is None:
        return 0.0
    return min(1.0, max(last["epoch"] / config.epochs, last["step"] / config.max_steps if config.max_steps else 0.0))


def _done(jobs: Iterable[Job], folder: Path) -> float:
    """Work that unfinished runs have behind them."""
    return sum(job.work * fraction(job, folder) for job in jobs)


def _run_all(
    jobs: Sequence[Job], folder: Path, threads: int, executor: Executor, watcher: Watcher | None
) -> Iterator[Outcome]:
    pending = {executor.submit(run_job, job, folder, threads): job for job in jobs}
    while pending:
        finished, _ = wait(pending, timeout=TICK_SECONDS, return_when=FIRST_COMPLETED)
        if _ASKED.is_set():
            raise KeyboardInterrupt
        ended = {future: pending.pop(future) for future in finished}
        if watcher is not None:
            watcher.tick(_done(pending.values(), folder))
        for future, job in ended.items():
            error = future.exception()
            yield future.result() if error is None else Outcome(job, 0.0, f"{type(error).__name__}: {error}")
