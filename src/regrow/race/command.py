"""The race itself: slices in turns, rows as they come, the outcome at the end.

for each round:   every entry that is not over trains one slice, alone on all threads; who begins rotates
after a slice:    a checkpoint, the error on held-out images, a row in rows.jsonl
at the end:       the whole test set, table, plot and page
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regrow import native
from regrow.allocator import keep_buffers
from regrow.config import Config
from regrow.environment import machine
from regrow.files import write_atomically
from regrow.race.clock import read_clock
from regrow.race.entries import DENSE, Entry, base_of, entries_of
from regrow.race.page import cells_of, markdown, write_outcome
from regrow.race.seconds import Reading
from regrow.race.slices import Runner
from regrow.race.standing import Row
from regrow.race.stored import CLOCK, ROWS, outcome, read_lines, write_lines, write_results
from regrow.training.optimisation import build_optimizer
from regrow.training.processes import use_threads
from regrow.training.setup import build_model, load_split

_LAYOUT_STEPS = 3
_CLOCKED = (
    "of training steps with their data, timed in alternation at the masks that each run kept, medians summed up over its schedule; "
    "as run: with whatever else the machine did"
)


def race(options: Any) -> int:
    """Run what is missing, then show and write the outcome."""
    keep_buffers()
    base = base_of(options.data, options.overrides)
    use_threads(base.threads)
    execution = options.execution or ("sparse" if native.available() else "masked")
    entries = entries_of(base, options.settings, options.seeds, execution)
    out = options.out or Path("runs") / f"race-{base.data.name}-{base.model}-{base.identity()}"
    out.mkdir(parents=True, exist_ok=True)
    layout = _dense_layout(base, out)
    entries = [_at_its_fastest(entry, layout) for entry in entries]
    rows = read_lines(out / ROWS)
    runners = [_runner(entry, out, rows, options) for entry in entries]
    mine = {(entry.label, entry.config.seed) for entry in entries}
    _alternate(runners, out, [row for row in rows if (row["setting"], row["seed"]) not in mine])
    readings = read_clock(runners, options.clock, out / CLOCK)
    results = {(r.entry.label, r.entry.config.seed): r.result()["test_error"] for r in runners if not _diverged(r)}
    _finish(runners, results, out, _about(base, options, layout), readings)
    return 0


def _runner(entry: Entry, out: Path, rows: list[Row], options: Any) -> Runner:
    mine = [row for row in rows if (row["setting"], row["seed"]) == (entry.label, entry.config.seed)]
    return Runner(entry, out / entry.folder, options.slice, mine, options.images)


def _alternate(runners: Sequence[Runner], out: Path, others: Sequence[Row]) -> None:
    """Slices in turns; rows of ``others``, which raced here before and do not now, stay in the file."""
    _write(runners, out, others)
    turn = 0
    while any(not runner.over for runner in runners):
        for k in range(len(runners)):
            runner = runners[(turn + k) % len(runners)]
            if not runner.over:
                row = runner.slice()
                _write(runners, out, others)
                error = "diverged" if row["error"] is None else f"{row['error']:.2f}% error"
                print(
                    f"{row['setting']} seed {row['seed']}: step {row['step']:,}, {row['seconds']:.1f} s, {error}, "
                    f"{row['density']:.2%} of weights, {row['updates']} updates",
                    flush=True,
                )
        turn += 1


def _finish(
    runners: Sequence[Runner],
    results: dict[tuple[str, int], float],
    out: Path,
    about: dict[str, str],
    readings: Sequence[Reading],
) -> None:
    write_results(out, results)
    found = outcome([row for runner in runners for row in runner.rows], results, readings)
    print(markdown(*cells_of(found.lines, found.rows)))
    for path in write_outcome(out, found.lines, found.rows, {**about, "seconds": _CLOCKED} if found.timed else about):
        print(path)


def _diverged(runner: Runner) -> bool:
    return any(row.get("diverged") for row in runner.rows)


def _write(runners: Sequence[Runner], out: Path, others: Sequence[Row]) -> None:
    write_lines(out / ROWS, [*others, *(row for runner in runners for row in runner.rows)])


def _at_its_fastest(entry: Entry, channels_last: bool) -> Entry:
    if entry.config.sparse.method != DENSE:
        return entry
    return replace(entry, config=replace(entry.config, channels_last=channels_last))


def _dense_layout(base: Config, out: Path) -> bool:
    """Whether dense images are faster with channels last; measured once and kept, as it decides bits."""
    path = out / "dense.json"
    if not path.is_file():
        train = load_split(base, base.data.train_split)
        images, labels = next(train.batches(0, base.data.batch))
        plain = replace(base, sparse=replace(base.sparse, method=DENSE, density=1.0, execution="masked"))
        seconds = {
            last: _step_seconds(replace(plain, channels_last=last), train, images, labels) for last in (True, False)
        }
        write_atomically(path, json.dumps({"channels_last": seconds[True], "ordinary": seconds[False]}).encode())
    found = json.loads(path.read_text())
    return found["channels_last"] <= found["ordinary"]


def _step_seconds(config: Config, train: Any, images: torch.Tensor, labels: torch.Tensor) -> float:
    network = build_model(config, train)
    optimizer = build_optimizer(network, config)
    taken = []
    for _ in range(_LAYOUT_STEPS):
        began = time.perf_counter()
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(images), labels).backward()
        optimizer.step()
        taken.append(time.perf_counter() - began)
    return min(taken)


def _about(base: Config, options: Any, channels_last: bool) -> dict[str, str]:
    epochs = f"{base.epochs} epochs" + (f", ended after {base.max_steps} steps" if base.max_steps else "")
    return {
        "data": base.data.name,
        "model": base.model,
        "settings": options.settings,
        "schedule": f"{epochs}, batch {base.data.batch}, learning rate {base.optimizer.lr:g}",
        "dense": f"eager, {'channels last' if channels_last else 'ordinary layout'} (the faster of both here)",
        "machine": machine(),
        "seconds": "of training steps with their data, without evaluation and checkpoints; runs alternated in slices",
        "error": f"curves: {options.images} held-out images; table: the whole test set",
    }
