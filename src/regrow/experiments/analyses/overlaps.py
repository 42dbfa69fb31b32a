"""How far the first masks with a growth window agree with those without, and the weights grown into them: kept in ``overlaps.csv``."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from regrow.config import Config
from regrow.experiments.columns import read_table, write_table
from regrow.files import held
from regrow.marks import count_of
from regrow.training.run import Run

COLUMNS = ("model", "data", "epochs", "seed", "overlap", "grown", "whole", "windowed")

Pair = tuple[str, str]


def overlaps(
    whole: Config, windowed: Config, seeds: Iterable[int], path: Path, measures: bool
) -> dict[int, tuple[float, float | None]]:
    """Seed -> overlap of a run with full momentum and one with the window: of masks, and of grown weights (None in early files).

    Args:
        whole: the run with full momentum, of any seed.
        windowed: the run with the window.
        seeds: wanted.
        path: where overlaps are kept, by the identities of both runs.
        measures: whether those that are missing are measured, and added to the file; else they are left out.
    """
    known, found = _read(path), {}
    for seed in seeds:
        one, other = replace(whole, seed=seed), replace(windowed, seed=seed)
        pair = one.identity(), other.identity()
        if pair not in known and measures:
            what = {"model": one.model, "data": one.data.name, "epochs": one.epochs, "seed": seed}
            masks, grown = first_overlap(one, other)
            measured = {**what, "overlap": masks, "grown": grown, "whole": pair[0], "windowed": pair[1]}
            with held(path.parent):
                known = _read(path) | {pair: measured}
                write_table(path, COLUMNS, known.values())
        if pair in known:
            row = known[pair]
            found[seed] = float(row["overlap"]), float(row["grown"]) if row["grown"] != "" else None
    return found


def first_overlap(one: Config, other: Config) -> tuple[float, float]:
    """Share of the weights present after the first topology update that both runs have; and of those that it grew."""
    (before, mine), (_, theirs) = _first_masks(one), _first_masks(other)
    grown, its = ([mask & ~was for mask, was in zip(masks, before, strict=True)] for masks in (mine, theirs))
    return _common(mine, theirs), _common(grown, its)


def _common(mine: list[Tensor], theirs: list[Tensor]) -> float:
    both = sum(count_of(a & b) for a, b in zip(mine, theirs, strict=True))
    return both / sum(count_of(a) for a in mine)


def _first_masks(config: Config) -> tuple[list[Tensor], list[Tensor]]:
    """The masks before and right after the first topology update."""

    class Stop:
        """Ends the run at its first update."""

        def updated(self, run: Run) -> None:
            run.stop_requested = True

        def __getattr__(self, name: str) -> object:
            return lambda *_: None

    with tempfile.TemporaryDirectory() as folder:
        run = Run(config, Path(folder), view=Stop())  # type: ignore[arg-type]  # answers every other event by __getattr__
        first = [mask.clone() for mask in run.parts.handle.masks.values()]
        run.train()
        return first, [mask.clone() for mask in run.parts.handle.masks.values()]


def _read(path: Path) -> dict[Pair, dict[str, Any]]:
    return {(row["whole"], row["windowed"]): dict(row) for row in read_table(path, COLUMNS, "overlaps")}
