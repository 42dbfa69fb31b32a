"""Run a sweep's jobs on Ray: an existing cluster, or a local one."""

from __future__ import annotations

import os
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from regrow.errors import ConfigurationError
from regrow.experiments.grid import Job
from regrow.experiments.sweep import Outcome, Run

# How long stopped runs may take to save.
SAVE_SECONDS = 120


class RayExecutor:
    """Jobs as Ray tasks; their folders must be on storage that all nodes share.

    An existing cluster is found by ``RAY_ADDRESS``; without it a local one is started and stopped again.

    Args:
        slots: tasks on one machine's worth of cores. Each asks Ray for as many cores as it has threads, no more than the largest node
            has, and for a GPU where there are any.
    """

    def __init__(self, slots: int) -> None:
        try:
            import ray
        except ImportError as error:
            raise ConfigurationError("--on ray needs the ray package: pip install 'regrow[ray]'") from error
        self.slots = slots
        self._ray = ray
        self._tasks: list[Any] = []
        if not ray.is_initialized():
            # Ray's current behaviour and its announced one differ on this for tasks without GPUs; here those run where there are none.
            os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
            ray.init(
                address=os.environ.get("RAY_ADDRESS"),
                include_dashboard=False,
                log_to_driver=False,
                logging_level="error",
            )
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        self._most_threads = int(max(node.get("CPU", 0) for node in nodes))
        self._gpus = int(any(node.get("GPU") for node in nodes))
        if not self._most_threads:
            raise ConfigurationError(
                "no node of the Ray cluster has a CPU for tasks: give one, as in ray start --num-cpus 8"
            )

    def submit(self, call: Run, job: Job, folder: Path, threads: int) -> Future[Outcome]:
        """Send a call to the cluster."""
        threads = min(threads, self._most_threads)
        task = self._ray.remote(num_cpus=threads, num_gpus=self._gpus, max_retries=0)(call)
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
