"""A progress bar for downloads, where there is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Report = Callable[[str, int, int | None], None]
"""Called with what is under way, bytes done, and bytes in total where known."""


def silent(what: str, done: int, total: int | None) -> None:
    """Report nothing."""


@contextmanager
def progress(title: str) -> Iterator[Report]:
    """A function that reports progress: a bar on the terminal, nothing where standard error is none."""
    if not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)

        def report(what: str, done: int, total: int | None) -> None:
            bar.update(task, description=f"{title}: {what}", completed=done, total=total)

        yield report
