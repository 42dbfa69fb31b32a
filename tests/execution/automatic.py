"""A small network under `auto`, and stopwatches that measure what a test wants."""

from tests.execution import small
from tests.execution.small import train

__all__ = ["DENSE_WINS", "SPARSE_WINS", "Stopwatch", "net", "sparse_layers", "start", "train"]


class Stopwatch:
    """Milliseconds by the first of (part of a name, figure) that fits; remembers what it was asked for."""

    def __init__(self, *figures, otherwise=1.0, runs=False):
        self.figures, self.otherwise, self.runs, self.asked = list(figures), otherwise, runs, []

    def __call__(self, candidates):
        self.asked += list(candidates)
        if self.runs:
            for run in candidates.values():
                run()
        return {name: self._figure(name) for name in candidates}

    def _figure(self, name):
        return next((ms for part, ms in self.figures if part in name), self.otherwise)


SPARSE_WINS = (("whole model, masked", 50.0), ("whole model", 5.0), (" dense", 10.0), ("random", 8.0), ("enter", 0.1))
DENSE_WINS = (
    ("whole model, masked", 50.0),
    ("whole model", 90.0),
    (" dense", 1.0),
    (" sparse", 9.0),
    (" window", 9.0),
    ("enter", 0.1),
)


def net():
    return small.net(dropout=0.2)


def start(timer, execution="auto", method="sparse-momentum", model=None, **options):
    model, optimizer, handle = small.start("masked", method, net() if model is None else model, **options)
    handle.switch.timer = timer
    handle.execute(execution)
    return model, optimizer, handle


def sparse_layers(handle):
    return {row.layer for row in handle.explain() if row.execution == "sparse"}
