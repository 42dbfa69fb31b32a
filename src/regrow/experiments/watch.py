"""Watching a sweep: a bar with the time left on a terminal, plain lines elsewhere."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from regrow.experiments.grid import Job
from regrow.experiments.sweep import Outcome

if TYPE_CHECKING:
    from rich.console import Console


def time_left(elapsed: float, before: float, now: float, total: float) -> float | None:
    """Seconds left, from the work done since the start; None while nothing is known.

    Example:
        >>> time_left(elapsed=60.0, before=2, now=4, total=10)
        180.0
    """
    return elapsed * (total - now) / (now - before) if now > before else None


def readable(seconds: float) -> str:
    """A duration in its two largest units.

    Example:
        >>> [readable(s) for s in (8.2, 95, 7300, 200_000, 4e8)]
        ['8 s', '1 min 35 s', '2 h 1 min', '2 d 7 h', '12 y 249 d']
    """
    sizes = (("y", 31_536_000), ("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))
    rest = round(seconds)
    for (name, size), (finer, part) in itertools.pairwise(sizes):
        if rest >= size:
            many, few = rest // size, rest % size // part
            return f"{many:,} {name} {few} {finer}" if few else f"{many:,} {name}"
    return f"{rest} s"


def _work(jobs: Iterable[Job]) -> float:
    return sum(job.work for job in jobs)


class SweepWatch:
    """Prints each run as it ends and shows how long the rest will take, which follows from its work, not from the number of runs."""

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self.console = console or Console()
        columns = (
            TextColumn("runs"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
        )
        self.progress = Progress(*columns, console=self.console, disable=not self.console.is_terminal)
        self.task = self.progress.add_task("runs", total=None, left="")
        self.done = self.total = 0
        self._clock, self._began, self._about = clock, clock(), "about"
        self._work = self._worked = self._before = self._running = 0.0

    def started(self, jobs: Sequence[Job], todo: Sequence[Job], begun: float = 0.0, at_most: bool = False) -> None:
        """A grid begins, of which ``todo`` is left; ``begun`` is the work that is done of that."""
        self.done, self.total = len(jobs) - len(todo), len(jobs)
        self._work, self._began, self._running = _work(jobs), self._clock(), begun
        self._worked = self._work - _work(todo)
        self._before = self._worked + begun
        self._about = "at most" if at_most else "about"
        self.progress.reset(self.task, total=self.total, completed=self.done, left="")
        if self.done:
            self._say(f"{self.done} of {self.total} runs were finished before")

    def skipped(self, jobs: Sequence[Job], why: str) -> None:
        """These runs will not take place."""
        self.total -= len(jobs)
        self._work -= _work(jobs)
        self.progress.update(self.task, total=self.total)
        self._say(f"{why}; {len(jobs)} runs are left out" if jobs else why)

    def ended(self, outcome: Outcome, again: bool) -> None:
        """One run ended."""
        self.done += not again
        self._worked += 0.0 if again else outcome.job.work
        if outcome.error:
            state = f"failed, {outcome.error}"
        elif outcome.diverged:
            state = f"diverged, {outcome.diverged}"
        else:
            state = f"finished in {readable(outcome.seconds)}"
        more = "; will be tried once more" if again else ""
        left = self._left()
        self._say(f"[{self.done}/{self.total}] {outcome.job.key}: {state}{more}{f'; {left}' if left else ''}")
        self.tick(self._running)

    def tick(self, running: float) -> None:
        """Move the bar; ``running`` is the work that unfinished runs have done."""
        self._running = running
        self.progress.update(self.task, completed=self.done, left=self._left())

    def _left(self) -> str:
        now = self._worked + self._running
        seconds = time_left(self._clock() - self._began, self._before, now, self._work)
        return f"{self._about} {readable(seconds)} left" if seconds and round(seconds) else ""

    def _say(self, line: str) -> None:
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def __enter__(self) -> SweepWatch:
        """Show the bar."""
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the terminal in order."""
        self.progress.stop()
