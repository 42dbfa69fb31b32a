"""``regrow train``: processes, signals, a view, one run."""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType

from regrow.config import Config
from regrow.training import processes as groups
from regrow.training.allocator import keep_buffers
from regrow.training.run import Run
from regrow.training.view import make_view

STOPPED = 130


def train(config: Config, folder: Path) -> int:
    """Train to the end; the exit code is 0, or 130 after a requested stop."""
    keep_buffers()
    processes = groups.join()
    view = make_view(config, folder) if processes.leads else None
    try:
        run = run_class(config)(config, folder, processes, view)
        _stop_on_signal(run)
        return STOPPED if run.train() is None else 0
    finally:
        if view is not None:
            view.close()
        groups.leave()


def run_class(config: Config) -> type[Run]:
    """The kind of run that a configuration asks for."""
    if not config.measure_speedup:
        return Run
    from regrow.training.measured import MeasuredRun

    return MeasuredRun


def _stop_on_signal(run: Run) -> None:
    """SIGINT and SIGTERM ask for a stop: the run saves and leaves after the current step; a second one kills."""

    def ask(number: int, frame: FrameType | None) -> None:
        run.stop_requested = True
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ask)
