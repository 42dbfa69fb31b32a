"""Run a sweep's jobs on Ray: an existing cluster, or a local one."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from regrow.errors import ConfigurationError
from regrow.experiments.sweep import Outcome


class RayExecutor:
    """Jobs as Ray tasks; folders must be on storage that all nodes share.

    Args:
        slots: tasks on one machine's worth of cores; each task asks Ray for its part of them.
    """

    def __init__(self, slots: int, cores: int) -> None:
        try:
            import ray
        except ImportError as error:
            raise ConfigurationError("--on ray needs the ray package: pip install 'regrow[ray]'") from error
        self.slots = slots
        self._ray = ray
        if not ray.is_initialized():
            ray.init(address=_existing_cluster(), include_dashboard=False, log_to_driver=False, logging_level="error")
        self._cores = max(1, cores // slots)

    def submit(self, call: Callable[..., Outcome], *arguments: Any) -> Future[Outcome]:
        """Send a call to the cluster."""
        return self._ray.remote(num_cpus=self._cores)(call).remote(*arguments).future()

    def close(self) -> None:
        """Leave the cluster, and stop it if it was started here."""
        self._ray.shutdown()


def _existing_cluster() -> str | None:
    import os

    return os.environ.get("RAY_ADDRESS")
