"""Run a sweep's jobs on Ray: an existing cluster, or a local one."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from regrow.environment import cores
from regrow.errors import ConfigurationError
from regrow.experiments.sweep import Outcome


class RayExecutor:
    """Jobs as Ray tasks; their folders must be on storage that all nodes share.

    An existing cluster is found by ``RAY_ADDRESS``; without it a local one is started and stopped again.

    Args:
        slots: tasks on one machine's worth of cores; each task asks Ray for its part of them.
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
        self._cores = max(1, cores() // slots)

    def submit(self, call: Callable[..., Outcome], *arguments: Any) -> Future[Outcome]:
        """Send a call to the cluster."""
        return self._ray.remote(num_cpus=self._cores, max_retries=0)(call).remote(*arguments).future()

    def stop(self) -> None:
        """Leave the cluster, which ends this sweep's tasks, and stop it if it was started here."""
        self._ray.shutdown()
