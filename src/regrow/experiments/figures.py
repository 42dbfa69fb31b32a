"""The paper's figures re-drawn: our points with error bars, the paper's beside them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regrow.experiments.experiment import Experiment
from regrow.experiments.statistics import Z95
from regrow.experiments.tables import Line
from regrow.experiments.targets import COMPETITORS


def draw(experiment: Experiment, table: Sequence[Line], folder: Path) -> list[Path]:
    """One figure per model, as SVG and PNG."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    written = []
    for model in dict.fromkeys(line.cell.model for line in table):
        lines = [line for line in table if line.cell.model == model]
        figure, axes = plt.subplots(figsize=(7.5, 5), layout="constrained")
        (_bars if experiment.figure == "bars" else _curves)(axes, lines)
        if experiment.figure == "compression":
            _competitors(axes, model)
        axes.set_title(f"{experiment.shows}: {model}")
        axes.legend(fontsize=7)
        for ending in ("svg", "png"):
            path = folder / f"{experiment.name}-{model}.{ending}"
            figure.savefig(path, dpi=150)
            written.append(path)
        plt.close(figure)
    return written


def _curves(axes: Any, lines: Sequence[Line]) -> None:
    """Error over density; a dense result is a horizontal band."""
    for line in lines:
        if line.cell.label == "dense":
            axes.axhline(line.summary.mean, color="black", linewidth=1, label=f"dense (n = {line.summary.n})")
            if line.summary.interval is not None:
                axes.axhspan(*line.summary.interval, color="black", alpha=0.08)
    series = dict.fromkeys(_series(line) for line in lines if line.cell.label != "dense")
    for number, name in enumerate(series):
        own = sorted((line for line in lines if _series(line) == name), key=lambda line: line.cell.density)
        x = [100 * line.cell.density for line in own]
        color = f"C{number}"
        bars = [Z95 * (line.summary.se or 0.0) for line in own]
        axes.errorbar(
            x, [line.summary.mean for line in own], bars, color=color, marker="o", capsize=3, label=f"{name} (ours)"
        )
        paper = [(at, line.cell.target) for at, line in zip(x, own, strict=True) if line.cell.target is not None]
        if paper:
            spread = [Z95 * (target.se or 0.0) for _, target in paper]
            points = ([at for at, _ in paper], [target.error for _, target in paper])
            axes.errorbar(
                *points, spread, color=color, marker="s", mfc="white", ls=":", capsize=3, label=f"{name} (paper)"
            )
    axes.set_xlabel("weights (%)")
    axes.set_ylabel("test error (%), 95% interval")


def _bars(axes: Any, lines: Sequence[Line]) -> None:
    """One bar per setting, the paper's value as a diamond."""
    names = [f"{line.cell.label}\n{100 * line.cell.density:g}%" for line in lines]
    bars = [Z95 * (line.summary.se or 0.0) for line in lines]
    axes.bar(
        range(len(lines)),
        [line.summary.mean for line in lines],
        yerr=bars,
        capsize=3,
        color="C0",
        alpha=0.7,
        label="ours",
    )
    known = [(i, line.cell.target) for i, line in enumerate(lines) if line.cell.target is not None]
    if known:
        spread = [Z95 * (target.se or 0.0) for _, target in known]
        points = ([i for i, _ in known], [target.error for _, target in known])
        axes.errorbar(*points, spread, ls="", marker="D", color="C3", capsize=3, label="paper")
    axes.set_xticks(range(len(lines)), names, fontsize=6, rotation=60 if len(lines) > 6 else 0)
    axes.set_ylabel("test error (%), 95% interval")


def _competitors(axes: Any, model: str) -> None:
    for number, (name, density, error) in enumerate(COMPETITORS[model]):
        axes.plot(density, error, marker="x", ls="", color=f"C{1 + number % 9}", label=name)


def _series(line: Line) -> str:
    """The label without its density."""
    words = line.cell.label.split()
    return " ".join(words[:-1]) if words[-1].endswith("%") else line.cell.label
