"""Counts of all calls so far, in a file, and beside their goals."""

import json
from pathlib import Path

from rich.table import Table

from regrow.files import write_atomically
from regrow.text import as_text


class Sums:
    """Sums by suite and name."""

    def __init__(self, path: Path):
        self.path = path
        self.counts = json.loads(path.read_text()) if path.is_file() else {}

    def of(self, suite, name):
        return self.counts.get(suite, {}).get(name, 0)

    def add(self, suite, counts):
        """Add the counts of one call, kept on disk at once."""
        mine = self.counts.setdefault(suite, {})
        for name, count in counts.items():
            mine[name] = mine.get(name, 0) + count
        self._write()

    def forget(self, suite):
        """Begin a suite anew, after what it found was mended."""
        self.counts.pop(suite, None)
        self._write()

    def _write(self):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, json.dumps(self.counts, indent=1).encode())


def first_case(sums, suite, goal):
    """The number of the next case."""
    return sums.of(suite, next(iter(goal)))


def is_done(sums, suite, goal):
    """Whether enough was done."""
    return all(sums.of(suite, name) >= count for name, count in goal.items())


def failures(sums, suite, zero):
    """What should never happen, and did."""
    return {name: count for name in zero if (count := sums.of(suite, name))}


def verdict(sums, name, suite):
    """One word for a suite."""
    if failures(sums, name, suite.ZERO):
        return "fails"
    return "met" if is_done(sums, name, suite.GOAL) else "goes on"


def table(sums, suites):
    """All suites with sums, goals, and what must be zero; ``suites`` maps names to modules."""
    shown = Table("suite", "done", "never", "besides", "goal")
    for name, suite in suites.items():
        done = [f"{sums.of(name, key):,} of {goal:,} {key}" for key, goal in suite.GOAL.items()]
        never = [f"{sums.of(name, key):,} {key}" for key in suite.ZERO]
        known = {*suite.GOAL, *suite.ZERO}
        rest = [f"{count:,} {key}" for key, count in sums.counts.get(name, {}).items() if key not in known]
        shown.add_row(name, *("\n".join(lines) for lines in (done, never, rest)), verdict(sums, name, suite))
    return as_text(shown)
