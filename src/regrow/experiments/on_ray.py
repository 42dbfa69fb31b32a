"""Run a sweep's jobs on Ray: an existing cluster, or a local one."""

from __future__ import annotations

import os
from concurrent.futures import Future
from pathlib import Path

from regrow.errors import ConfigurationError
from regrow.experiments.grid import Job
from regrow.experiments.sweep import Outcome, Run


class RayExecutor:
    """Jobs as Ray tasks; their folders must be on storage that all nodes share.

    An existing cluster is found by ``RAY_ADDRESS``; without it a local one is started and stopped again.

    Args:
        slots: tasks on one machine's worth of cores; each asks Ray for as many cores as it has threads.
    """

    def __init__(self, slots: int) -> None:
        try:
            import ray
        except ImportError as error:
            raise ConfigurationError("--on ray needs the ray package: pip install 'regrow[ray]'") from error
        self.slots = slots
        self._ray = ray
        if not ray.is_initialized():
            # Ray's current behaviour and its announced one differ on this for tasks without GPUs; nothing here depends on it.
            os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
            ray.init(
                address=os.environ.get("RAY_ADDRESS"),
                include_dashboard=False,
                log_to_driver=False,
                logging_level="error",
            )

    def submit(self, call: Run, job: Job, folder: Path, threads: int) -> Future[Outcome]:
        """Send a call to the cluster, with a core for each of its threads."""
        return self._ray.remote(num_cpus=threads, max_retries=0)(call).remote(job, folder, threads).future()

    def stop(self) -> None:
        """Leave the cluster, which ends this sweep's tasks, and stop it if it was started here."""
        self._ray.shutdown()
