"""Runs that take no time: an executor that writes what a training run would leave."""

import json
from concurrent.futures import Future
from dataclasses import replace

from regrow.config import Config, Data, Sparse
from regrow.experiments.experiment import Cell
from regrow.experiments.sweep import Outcome
from regrow.experiments.targets import Target

BASE = Config(epochs=1, data=Data("mnist-sample"), sparse=Sparse(density=0.05))

PAPER = Target(2.0, 0.05)


def finish(job, folder, error=2.0, **extra):
    """Leave the files of a finished run."""
    home = folder / job.key
    home.mkdir(parents=True, exist_ok=True)
    result = {
        "test_error": error,
        "test_accuracy": 1 - error / 100,
        "test_top5": None,
        "steps": 36,
        "nonzeros": 13310,
        "weights": 266200,
        "macs_share": 0.05,
        "density": job.config.sparse.density,
        "identity": job.config.identity(),
        **extra,
    }
    result = {key: None if value != value else value for key, value in result.items()}  # no run writes NaN
    (home / "result.json").write_text(json.dumps(result))
    machine = {"threads": 1, "processor": "a processor", "torch": "2.13.0", "regrow": "0.1.0"}
    (home / "environment.json").write_text(json.dumps(machine))
    (home / "speed.jsonl").write_text('{"step": 36, "seconds": 1.5, "processor_seconds": 1.25}\n')


class FakeExecutor:
    """Finishes each job at once, with the error that a function gives it, or fails where that raises."""

    def __init__(self, error_of=lambda config: 2.0 + 0.1 * config.seed, extra=None):
        self.slots, self.error_of, self.extra = 2, error_of, extra or {}
        self.ran, self.stops, self.threads = [], 0, []

    def submit(self, call, job, folder, threads):
        self.ran.append(job)
        self.threads.append(threads)
        future = Future()
        try:
            finish(job, folder, self.error_of(job.config), **self.extra)
            future.set_result(Outcome(job, 1.5))
        except ValueError as failure:
            future.set_result(Outcome(job, 0.5, str(failure)))
        except OSError as failure:
            future.set_exception(failure)
        return future

    def stop(self):
        self.stops += 1


def cell(model="lenet300", label="sparse momentum", density=0.05, target=PAPER, method=None, **options):
    """A cell of a tiny table."""
    method = method or ("dense" if label == "dense" else "sparse-momentum")
    config = replace(BASE, model=model, sparse=Sparse(method=method, density=density, options=options))
    return Cell(model, label, density, config, target)
