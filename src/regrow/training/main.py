"""``regrow train``: processes, signals, a view, one run."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType

from regrow.allocator import keep_buffers
from regrow.config import Config
from regrow.environment import code
from regrow.errors import ConfigurationError, DivergenceError, StateError
from regrow.files import held
from regrow.signals import on_request_to_end
from regrow.training import processes as groups
from regrow.training.folder import RunFolder
from regrow.training.run import Run
from regrow.training.view import make_view
from regrow.training.watch import note_divergence

STOPPED = 130
GRACE_SECONDS = 1.0


def train(config: Config, folder: Path) -> int:
    """Train to the end; the exit code is 0, or 130 after a requested stop."""
    keep_buffers()
    processes = groups.join()
    view = make_view(config, folder) if processes.leads else None
    run: Run | None = None
    try:
        with alone_in(folder, processes.leads):
            if processes.leads:
                RunFolder(folder).diverged.unlink(missing_ok=True)
            with nothing_left(folder, processes.leads):
                run = run_class(config)(config, folder, processes, view)
            with _stop_on_signal(run):
                return STOPPED if run.train() is None else 0
    except DivergenceError as error:
        if processes.leads:
            note_divergence(folder, config.identity(), *((run.step, run.code) if run else (0, code())), error)
        raise
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


@contextmanager
def alone_in(folder: Path, leads: bool = True) -> Iterator[None]:
    """Hold a run's folder against a second process with the same command; the system lets go when this one dies."""
    if not leads:
        yield
        return
    with ExitStack() as stack:
        stack.callback(_remove_empty, _make(folder))
        try:
            stack.enter_context(held(folder, wait=False))
        except BlockingIOError as error:
            raise StateError(
                f"another process is training in {folder}: wait for it, or choose another --out"
            ) from error
        yield


def _make(folder: Path) -> list[Path]:
    """Make a folder with all above it; returns those that were not there, the innermost first."""
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"{folder} cannot be the folder of a run ({error.strerror}): choose another one with --out"
        ) from error
    return made


def _remove_empty(folders: Iterable[Path]) -> None:
    """Remove folders in which a run left nothing."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


@contextmanager
def nothing_left(folder: Path, leads: bool = True) -> Iterator[None]:
    """Remove the description of a run that is refused before it exists."""
    new = [path for path in RunFolder(folder).description if not path.exists()]
    try:
        yield
    except DivergenceError:
        raise  # first masks by gradients may diverge: an ending of the run, which keeps its description
    except BaseException:
        if leads:
            for path in new:
                path.unlink(missing_ok=True)
        raise


@contextmanager
def _stop_on_signal(run: Run) -> Iterator[None]:
    """SIGINT and SIGTERM ask for a stop: the run saves and leaves after the current step; a second one, later, kills.

    A terminal's Ctrl-C reaches a process twice at once under torchrun, from the terminal and from torchrun itself.
    """
    asked: list[float] = []

    def ask(number: int, frame: FrameType | None) -> None:
        if asked and time.monotonic() - asked[0] > GRACE_SECONDS:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        asked.append(time.monotonic())
        run.stop_requested = True

    with on_request_to_end(ask):
        yield
