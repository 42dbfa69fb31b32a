"""Does the growth window change sparse momentum? Its first masks and its final errors against momentum collected in every step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from regrow.analysis.statistics import paired_test, student_interval, summarise
from regrow.config import Config
from regrow.experiments.analyses.material import Material
from regrow.experiments.analyses.overlaps import overlaps
from regrow.experiments.duration import SAMPLES
from regrow.experiments.experiment import Cell
from regrow.experiments.rows import Row, learned, of_setting
from regrow.experiments.tables import markdown, with_se
from regrow.momentum import window_length


def describe(material: Material) -> str:
    """Overlap of the first masks, difference of the final errors seed by seed, share of steps with dense gradients."""
    rows = []
    for model in dict.fromkeys(cell.model for cell in material.cells):
        own = [cell for cell in material.cells if cell.model == model]
        whole = next((cell for cell in own if not cell.config.sparse.window_tolerance), None)
        if whole is not None:
            rows += [line for cell in own if cell is not whole for line in _lines(whole, cell, material)]
    if not rows:
        return ""
    head = (
        "The growth window against momentum collected in every step: same seeds, same execution in both arms. Overlap: share of the "
        "first new masks, and of the weights grown into them, that both have, least .. largest (masked execution). Difference: test error "
        "with the window minus without, in points, over pairs in which both learned; interval: Student's t.\n\n"
    )
    header = (
        "model",
        "window",
        "pairs",
        "overlap %",
        "of grown weights %",
        "difference ± SE",
        "95% interval",
        "p (paired t)",
        "p (Wilcoxon)",
        "steps with dense gradients %",
    )
    return head + markdown(header, rows)


def _lines(whole: Cell, windowed: Cell, material: Material) -> list[tuple[str, ...]]:
    """The line of one window, if there are pairs."""
    pairs = error_pairs(whole, windowed, material.rows)
    if len(pairs) < 2:
        return []
    arms = _masked(whole.config), _masked(windowed.config)
    found = overlaps(*arms, pairs, material.results / "overlaps.csv", material.measures)
    differences = [ours - theirs for ours, theirs in pairs.values()]
    mean, t_test, wilcoxon = summarise(differences), *paired_test(differences)
    low, high = student_interval(differences)
    line = (
        windowed.model,
        windowed.label,
        str(len(pairs)),
        _range({seed: masks for seed, (masks, _) in found.items()}, len(pairs)),
        _range({seed: grown for seed, (_, grown) in found.items() if grown is not None}, len(pairs)),
        with_se(mean.mean, mean.se, "+.4f"),
        f"{low:+.3f} .. {high:+.3f}",
        f"{t_test:.3g}",
        f"{wilcoxon:.3g}",
        f"{100 * dense_share(windowed.config):.1f}",
    )
    return [line]


def _masked(config: Config) -> Config:
    return replace(config, sparse=replace(config.sparse, execution="masked"))


def _range(found: Mapping[int, float], pairs: int) -> str:
    """Least and largest overlap in percent, and of how many pairs if not of all."""
    if not found:
        return "not measured"
    text = f"{100 * min(found.values()):.3f} .. {100 * max(found.values()):.3f}"
    return text if len(found) == pairs else f"{text} ({len(found)} of {pairs})"


def error_pairs(whole: Cell, windowed: Cell, rows: Sequence[Row]) -> dict[int, tuple[float, float]]:
    """Seed -> (error with the window, error with full momentum), where both are finished and learned, as the cells compute."""
    alike = [row for row in rows if row["execution"] == whole.config.sparse.execution and learned(row)]
    errors = [
        {int(row["seed"]): float(row["test_error"]) for row in of_setting(cell.config, alike)}
        for cell in (windowed, whole)
    ]
    return {seed: (errors[0][seed], errors[1][seed]) for seed in sorted(set(errors[0]) & set(errors[1]))}


def dense_share(config: Config) -> float:
    """Share of a run's steps whose backward computes gradients of missing weights."""
    per_epoch = -(-SAMPLES[config.data.name] // config.data.batch)
    length = window_length(config.optimizer.momentum, config.sparse.window_tolerance, per_epoch)
    stride = config.sparse.window_stride if config.sparse.window_tolerance else 1
    return -(-length // stride) * (config.epochs - 1) / (per_epoch * config.epochs)
