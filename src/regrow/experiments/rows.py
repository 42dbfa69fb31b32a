"""Raw rows: one per finished run, as ``runs.csv``, from which every table can be computed again."""

from __future__ import annotations

import csv
import json
import math
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from regrow.analysis.speedup import ESTIMATES
from regrow.arguments import without_effect
from regrow.config import Config, changes, kind_of
from regrow.defaults import differing
from regrow.errors import CheckpointWarning, StateError
from regrow.experiments.columns import write_table
from regrow.files import held
from regrow.ranges import value_at
from regrow.training.folder import RunFolder
from regrow.training.forms import is_ending, is_speed_row, read_json
from regrow.training.ledger import read_rows
from regrow.training.metrics import at_chance
from regrow.training.provenance import read_environment

_SPEEDUPS = tuple(f"speedup_{name}" for name in ESTIMATES)
COLUMNS = (
    "model", "data", "method", "density", "seed", "epochs", "max_steps", "steps", "execution", "window_tolerance", "options", "other",
    "scope", "distribution", "batch", "lr", "momentum", "weight_decay", "test_error", "test_accuracy", "test_top5", "nonzeros", "weights",
    "dense_weights", "macs_share", "seconds", "processor_seconds", "threads", "processor", "torch", "regrow", "code", "identity",
    *_SPEEDUPS,
)  # fmt: skip

Row = Mapping[str, Any]

# Columns that tell settings apart, with the keys they show.
_SETTING = {
    "model": "model", "data": "data.name", "method": "sparse.method", "density": "sparse.density", "epochs": "epochs",
    "max_steps": "max_steps", "batch": "data.batch", "lr": "optimizer.lr", "momentum": "optimizer.momentum",
    "weight_decay": "optimizer.weight_decay", "scope": "sparse.scope", "distribution": "sparse.distribution",
    "window_tolerance": "sparse.window_tolerance", "options": "sparse.options",
}  # fmt: skip
# Keys that do not change what is trained, or tell apart runs of one setting.
_APART = {
    "seed", "threads", "log_every", "evaluate_every", "patience", "checkpoint_seconds", "keep_checkpoints", "tensorboard",
    "measure_speedup", "compile", "channels_last", "data.root", "data.eval_batch",
}  # fmt: skip
_CLASSES = {"imagenet": 1000}
_TEN_CLASSES = 10


def setting_of(config: Config) -> dict[str, str]:
    """The columns that tell settings apart, as text."""
    values: dict[str, Any] = {
        column: float(value) if kind_of(path) is float else value
        for column, path in _SETTING.items()
        for value in [value_at(config, path)]
    }
    apart = _APART | set(_SETTING.values()) | {f"sparse.{key}" for key in without_effect(config.sparse)}
    other = {path: value for path, value in changes(config).items() if path not in apart}
    values |= {"options": _json(differing(config.sparse.method, config.sparse.options)), "other": _json(other)}
    return {key: str(value) for key, value in values.items()}


def of_setting(config: Config, rows: Iterable[Row]) -> list[Row]:
    """The rows that are runs of this configuration, whatever their seed and execution.

    Numbers are compared as numbers, so that a spreadsheet may rewrite 1.0 as 1.
    """
    wanted = {key: _plain(value) for key, value in setting_of(config).items()}
    return [row for row in rows if all(value == _plain(str(row[key])) for key, value in wanted.items())]


def learned(row: Row) -> bool:
    """Whether a run has an error worth averaging: its loss stayed finite, and it is better than naming the most frequent class."""
    return not at_chance(1 - float(row["test_error"]) / 100, _CLASSES.get(row["data"], _TEN_CLASSES))


def ending_of(config: Config, home: Path) -> dict[str, Any] | None:
    """What a run left at its end, a result or the note that it diverged; None before, and where more patience is asked than it had."""
    for path in RunFolder(home).endings:
        try:
            found = read_json(path, is_ending)
        except StateError as error:
            # The run itself is whole in its checkpoints: repeated, it writes the file anew.
            warnings.warn(str(error), CheckpointWarning, stacklevel=2)
            continue
        if found is not None and found["identity"] == config.identity():
            spent = found.get("patience", 0)
            if not spent or 0 < config.patience <= spent:
                return found
    return None


def row_of(config: Config, home: Path) -> dict[str, Any]:
    """The row of a run that ended."""
    result = ending_of(config, home)
    if result is None:
        raise StateError(f"the run in {home} has not ended")
    environment = read_environment(RunFolder(home).environment)
    speedups, timed = result.get("speedup") or {}, read_rows(RunFolder(home).speed, is_speed_row)
    return {
        **setting_of(config),
        "seed": config.seed,
        "steps": result["steps"],
        "execution": config.sparse.execution,
        "test_error": round(_number(result.get("test_error")), 6),
        # Results from before it was counted: fully sparse networks have none.
        "dense_weights": result.get("dense_weights", 0 if config.sparse.scope == "fully-sparse" else None),
        **{
            key: result.get(key)
            for key in ("test_accuracy", "test_top5", "nonzeros", "weights", "macs_share", "identity")
        },
        **{key: round(sum(row.get(key, 0) for row in timed), 2) for key in ("seconds", "processor_seconds")},
        **{key: environment.get(key) for key in ("threads", "torch", "regrow")},
        "processor": environment.get("gpu") or environment.get("processor"),
        "code": result.get("code", environment.get("code")),
        **{f"speedup_{name}": speedups.get(name) for name in ESTIMATES},
    }


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def read_runs(path: Path) -> list[dict[str, str]]:
    """The rows of a ``runs.csv``, as text."""
    with open(path, newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        missing = set(setting_of(Config())) | {"seed", "test_error", "execution", "identity"}
        missing -= set(reader.fieldnames or ())
        if missing:
            raise StateError(f"{path} is not a table of runs: it has no column {', '.join(sorted(missing))}")
        return list(reader)


def add_runs(path: Path, rows: Iterable[Row]) -> list[dict[str, str]]:
    """Add rows to a ``runs.csv``, replacing those of the same run, and return all of them as they are in the file.

    Speed-ups stay where the same run without measuring them comes later, and so do columns that somebody added.
    """
    with held(path.parent):
        known = {_run(row): dict(row) for row in (read_runs(path) if path.is_file() else ())}
        for row in rows:
            kept = {key: value for key, value in known.get(_run(row), {}).items() if _stays(key) and not row.get(key)}
            known[_run(row)] = {**row, **kept}
        columns = dict.fromkeys([*COLUMNS, *(key for row in known.values() for key in row if key)])
        write_table(path, list(columns), sorted(known.values(), key=_order))
        return read_runs(path)


def _stays(column: str) -> bool:
    return column in _SPEEDUPS or column not in COLUMNS


def _run(row: Row) -> tuple[Any, ...]:
    """What tells runs apart: the identity leaves out where a run ends."""
    return row["identity"], _plain(str(row["max_steps"]))


def _order(row: Row) -> tuple[Any, ...]:
    texts = (row["model"], row["data"], row["method"], float(row["density"]), row["options"], float(row["momentum"]))
    return (
        *texts,
        row["execution"],
        float(row["epochs"]),
        _plain(str(row["max_steps"])),
        int(row["seed"]),
        row["identity"],
    )


def _json(values: dict[str, Any]) -> str:
    return json.dumps(values, sort_keys=True) if values else ""


def _plain(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text
