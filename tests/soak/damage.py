"""Damaged checkpoints and side files: never silent, never a traceback.

Each case damages one file of a stopped run. Checkpoints are then read, or the run is resumed to its end, evaluated, reported, or read by
a sweep. Weights must come out the same, or the damage must be named in a warning or a one-line error.
"""

import contextlib
import io
import random
import shutil
import tempfile
import time
import traceback
import warnings
from pathlib import Path

import torch

from regrow.config import Sparse
from regrow.errors import RegrowError, RegrowWarning
from regrow.experiments.rows import ending_of, row_of
from regrow.report import write_report
from regrow.training.checkpoint import Checkpoints, serialise_tensors, split
from regrow.training.run import Run
from regrow.training.stored import evaluate_run
from tests.soak.mutations import damage
from tests.training import tiny
from tests.training.test_run import StopAt

GOAL = {"cases": 2500}
ZERO = ("silent", "tracebacks")
SIDE = (
    "config.toml",
    "environment.json",
    "metrics.jsonl",
    "topology.jsonl",
    "speed.jsonl",
    "result.json",
    "metrics.csv",
)
# Written anew at every start from what is known otherwise, or measured times alone: nothing is lost in silence.
DERIVED = {"environment.json", "metrics.csv", "result.json", "speed.jsonl"}


class Prepared:
    """A run stopped in the middle, the same run whole, and the tensors of its checkpoints."""

    def __init__(self, work):
        data = tiny.write_data(work / "data.npz", train=120, test=40)
        settings = {"epochs": 1, "log_every": 1, "sparse": Sparse(density=0.3, update_every=2)}
        self.config = tiny.config(data, **settings)
        self.stopped, self.whole = work / "stopped", work / "whole"
        Run(self.config, self.whole).train()
        Run(self.config, self.stopped, view=StopAt(4)).train()
        shutil.copy(self.whole / "result.json", self.stopped)
        self.ending = ending_of(self.config, self.whole)
        self.states = {path.name: tensors(path) for path in Checkpoints(self.stopped / "checkpoints").paths()}
        self.end = tensors(Checkpoints(self.whole / "checkpoints").paths()[-1])


def tensors(path):
    return (path / "tensors.safetensors").read_bytes()


def run(deadline, first):
    torch.set_num_threads(1)
    counts = dict.fromkeys((*GOAL, *ZERO, "named", "refused", "unharmed"), 0)
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="regrow-damage-", dir=memory) as work:
        prepared = Prepared(Path(work))
        while time.monotonic() < deadline or not counts["cases"]:
            case(first + counts["cases"], prepared, Path(work) / "case", counts)
            counts["cases"] += 1
    return counts


def case(number, prepared, folder, counts):
    draw = random.Random(number)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(prepared.stopped, folder)
    checkpoints = Checkpoints(folder / "checkpoints").paths()
    in_checkpoint = draw.random() < 0.7
    if in_checkpoint:
        path = draw.choice(checkpoints) / draw.choice(["tensors.safetensors", "state.json", "manifest.json"])
        use = read if draw.random() < 0.95 else resume
    else:
        path = folder / draw.choice(SIDE)
        use = reported if draw.random() < 0.04 else draw.choice([resume, evaluated, swept])  # reports take long
    kind = damage(path, draw)
    where = f"{path.relative_to(folder)} {kind}, {use.__name__}"
    with warnings.catch_warnings(record=True) as told, contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("always")
        try:
            same = use(prepared, folder)
        except (RegrowError, OSError) as error:
            named = isinstance(error, RegrowError) or error.filename is not None
            return count(counts, "refused" if named else "tracebacks", number, where, str(error) if not named else "")
        except BaseException as error:
            return count(counts, "tracebacks", number, where, traceback.format_exc() if number < 0 else repr(error))
    if any(issubclass(warning.category, RegrowWarning) for warning in told):
        return count(counts, "named" if same else "silent", number, where)
    harmless = kind is None or path.name in DERIVED or use is not resume or path.parent == checkpoints[0]
    return count(
        counts, "unharmed" if same and (harmless or unnoticed(path, prepared, folder)) else "silent", number, where
    )


def unnoticed(path, prepared, folder):
    """Whether damage left everything as it would have been: the rows of a resumed run, say, of a last line cut off."""
    if path.parent.name == "checkpoints" or path.parent.parent.name == "checkpoints":
        return True  # read or resumed with the right tensors: what was damaged does not count
    return path.read_bytes() == (prepared.whole / path.name).read_bytes()


def count(counts, what, number, where, error=""):
    counts[what] += 1
    if what in ZERO:
        print(f"damage: case {number}: {what}: {where}: {error}", flush=True)


# Each use says whether the weights that came out are the right ones.


def read(prepared, folder):
    step, state = Checkpoints(folder / "checkpoints").latest()
    return serialise_tensors(split(state)[1]) == prepared.states[f"step-{step:08d}"]


def resume(prepared, folder):
    Run(prepared.config, folder).train()
    return tensors(Checkpoints(folder / "checkpoints").paths()[-1]) == prepared.end


def evaluated(prepared, folder):
    evaluate_run(folder)
    return True


def reported(prepared, folder):
    write_report(folder)
    return True


def swept(prepared, folder):
    ending = ending_of(prepared.config, folder)
    if ending is None:
        return True  # the run is repeated
    row_of(prepared.config, folder)
    return ending == prepared.ending
