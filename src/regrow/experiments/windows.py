"""Does the growth window change sparse momentum? Its first masks and its final errors against momentum collected in every step."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from regrow.config import Config
from regrow.experiments.experiment import Cell
from regrow.experiments.rows import Row, same_setting
from regrow.experiments.statistics import paired_test, summarise
from regrow.experiments.tables import markdown, with_se

if TYPE_CHECKING:
    from torch import Tensor

    from regrow.experiments.extras import Material


def describe(material: Material) -> str:
    """Overlap of the first masks, difference of the final errors seed by seed, share of steps with dense gradients."""
    rows = []
    for model in dict.fromkeys(cell.model for cell in material.cells):
        whole, windowed = sorted((c for c in material.cells if c.model == model), key=_tolerance)
        pairs = error_pairs(whole, windowed, material.rows)
        if len(pairs) < 2:
            continue
        overlaps = [first_overlap(whole.config, windowed.config, seed) for seed in pairs]
        differences = [ours - theirs for ours, theirs in pairs.values()]
        mean, t_test, wilcoxon = summarise(differences), *paired_test(differences)
        rows.append(
            (
                model,
                str(len(pairs)),
                f"{100 * min(overlaps):.3f} .. {100 * max(overlaps):.3f}",
                with_se(mean.mean, mean.se, "+.4f"),
                f"{t_test:.3g}",
                f"{wilcoxon:.3g}",
                f"{100 * dense_share(windowed.config):.1f}",
            )
        )
    if not rows:
        return ""
    head = (
        "The growth window against momentum collected in every step, same seeds, masked execution in both arms. Overlap: share of "
        "weights of the first new masks that both have. Difference: test error with the window minus without, in points.\n\n"
    )
    header = (
        "model",
        "pairs",
        "overlap %",
        "difference ± SE",
        "p (paired t)",
        "p (Wilcoxon)",
        "steps with dense gradients %",
    )
    return head + markdown(header, rows)


def _tolerance(cell: Cell) -> float:
    return cell.config.sparse.window_tolerance


def error_pairs(whole: Cell, windowed: Cell, rows: Sequence[Row]) -> dict[int, tuple[float, float]]:
    """Seed -> (error with the window, error with full momentum), where both are finished, with masked execution."""
    masked = [row for row in rows if row["execution"] == "masked"]
    errors = [
        {int(row["seed"]): float(row["test_error"]) for row in masked if same_setting(cell.config, row)}
        for cell in (windowed, whole)
    ]
    return {seed: (errors[0][seed], errors[1][seed]) for seed in sorted(set(errors[0]) & set(errors[1]))}


def first_overlap(one: Config, other: Config, seed: int) -> float:
    """Share of the weights present after the first topology update that both runs have."""
    mine, theirs = (_first_masks(replace(config, seed=seed)) for config in (one, other))
    both = sum(int((a & b).count_nonzero()) for a, b in zip(mine, theirs, strict=True))
    return both / sum(int(a.count_nonzero()) for a in mine)


def _first_masks(config: Config) -> list[Tensor]:
    """The masks right after the first topology update."""
    from regrow.training.run import Run

    class Stop:
        """Ends the run at its first update."""

        def updated(self, run: Run) -> None:
            run.stop_requested = True

        def __getattr__(self, name: str) -> object:
            return lambda *_: None

    with tempfile.TemporaryDirectory() as folder:
        run = Run(config, Path(folder), view=Stop())  # type: ignore[arg-type]
        run.train()
        return [mask.clone() for mask in run.parts.handle.masks.values()]


def dense_share(config: Config) -> float:
    """Share of a run's steps whose backward computes gradients of missing weights."""
    from regrow.experiments.cost import SAMPLES
    from regrow.momentum import window_length

    per_epoch = -(-SAMPLES[config.data.name] // config.data.batch)
    length = window_length(config.optimizer.momentum, config.sparse.window_tolerance, per_epoch)
    return length * (config.epochs - 1) / (per_epoch * config.epochs)
