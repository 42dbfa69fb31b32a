"""Run a sweep's jobs on Ray: an existing cluster, or a local one."""

from __future__ import annotations

import logging
import os
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from regrow.errors import MissingPackageError, UnreachableError
from regrow.experiments.grid import Job
from regrow.experiments.sweep import Outcome, Run

# How long stopped runs may take to save.
SAVE_SECONDS = 120


class RayExecutor:
    """Jobs as Ray tasks; their folders must be on storage that all nodes share.

    An existing cluster is found by ``RAY_ADDRESS``; without it a local one is started and stopped again.

    Args:
        slots: tasks on one machine's worth of cores. Each asks Ray for as many cores as it has threads, and for a GPU where there are any;
            no more cores than the largest node has, of those with GPUs where they count. Clusters may still be without nodes, and grow.
    """

    def __init__(self, slots: int) -> None:
        try:
            import ray
        except ImportError as error:
            raise MissingPackageError("--on ray needs the ray package: pip install 'regrow[ray]'") from error
        self.slots = slots
        self._ray = ray
        self._tasks: list[Any] = []
        if not ray.is_initialized():
            # Ray's current behaviour and its announced one differ on this for tasks without GPUs; here those run where there are none.
            os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
            self._join(os.environ.get("RAY_ADDRESS"))

    def _join(self, address: str | None) -> None:
        """Enter the cluster at an address, or start a local one."""
        try:
            self._ray.init(address=address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:
            # Ray has no kind of error of its own for this: a node that starts too slowly is a bare Exception.
            what = f"the Ray cluster at RAY_ADDRESS={address} cannot be joined" if address else "Ray cannot be started"
            raise UnreachableError(f"{what} ({error}): try again, or compute here with --on local") from error

    def submit(self, call: Run, job: Job, folder: Path, threads: int) -> Future[Outcome]:
        """Send a call to the cluster."""
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        with_gpu = [node for node in nodes if node.get("GPU")]
        most = max((int(node.get("CPU", 0)) for node in with_gpu or nodes), default=0)
        threads = min(threads, most or threads)
        task = self._ray.remote(num_cpus=threads, num_gpus=int(bool(with_gpu)), max_retries=0)(call)
        self._tasks.append(task.remote(job, folder, threads))
        return self._tasks[-1].future()

    def stop(self) -> None:
        """Let what runs save, leave the cluster, and stop it if it was started here."""
        tasks, self._tasks = self._tasks, []
        if tasks:
            _, running = self._ray.wait(tasks, num_returns=len(tasks), timeout=0)
            for task in running:
                self._ray.cancel(task)
            if running:
                self._ray.wait(running, num_returns=len(running), timeout=SAVE_SECONDS)
        self._ray.shutdown()
