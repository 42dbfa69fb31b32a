"""The paper's figures re-drawn: our points with error bars, the paper's beside them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regrow.experiments.experiment import Experiment
from regrow.experiments.extras import split_label
from regrow.experiments.statistics import Z95
from regrow.experiments.tables import Line
from regrow.experiments.targets import COMPETITORS

ERROR = "test error (%), bars: 95% interval"
_LOG_FROM = 5.0
_LEFT_OUT = 0.99
_MARKERS = "xv^<>PX*hd8"


def draw(experiment: Experiment, table: Sequence[Line], folder: Path) -> list[Path]:
    """One figure per model, as SVG and PNG."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    written = []
    for model in dict.fromkeys(line.cell.model for line in table):
        lines = [line for line in table if line.cell.model == model]
        figure = plt.figure(figsize=_size(experiment, lines), layout="constrained")
        _KINDS[experiment.figure](figure, model, lines)
        figure.suptitle(f"{model}: {experiment.shows}", fontsize=10)
        for ending in ("svg", "png"):
            path = folder / f"{experiment.name}-{model}.{ending}"
            figure.savefig(path, dpi=150)
            written.append(path)
        plt.close(figure)
    return written


def _size(experiment: Experiment, lines: Sequence[Line]) -> tuple[float, float]:
    if experiment.figure == "bars":
        return 7.5, 1.6 + 0.32 * len(lines)
    return (9.5, 4.2) if experiment.figure == "sensitivity" else (8.5, 4.8)


def _curves(figure: Any, model: str, lines: Sequence[Line]) -> Any:
    """Error over density; a dense result is a horizontal band."""
    axes = figure.subplots()
    for line in lines:
        if _is_dense(line):
            _dense_band(axes, line)
    thin = [line for line in lines if not _is_dense(line)]
    for number, name in enumerate(dict.fromkeys(map(_series, thin))):
        own = sorted((line for line in thin if _series(line) == name), key=lambda line: line.cell.density)
        _series_and_paper(axes, [100 * line.cell.density for line in own], own, name, f"C{number}")
    axes.set_xlabel("weights (%)")
    axes.set_ylabel(ERROR)
    axes.grid(alpha=0.25)
    _density_axis(axes, sorted({100 * line.cell.density for line in thin}))
    figure.legend(loc="outside right upper", fontsize=7)
    return axes


def _compression(figure: Any, model: str, lines: Sequence[Line]) -> None:
    """The curve, with the compression methods of the paper's figure as single points."""
    axes = _curves(figure, model, lines)
    points = COMPETITORS[model]
    names = list(dict.fromkeys(name for name, _, _ in points))
    for number, name in enumerate(names):
        own = [(density, error) for other, density, error in points if other == name]
        x, y = zip(*own, strict=True)
        axes.plot(x, y, marker=_MARKERS[number % len(_MARKERS)], ls="", color=f"C{2 + number % 8}", label=name)
    shown = {100 * line.cell.density for line in lines if not _is_dense(line)}
    _density_axis(axes, sorted(shown | {density for _, density, _ in points}))
    for legend in list(figure.legends):
        legend.remove()
    figure.legend(loc="outside right upper", fontsize=7)


def _bars(figure: Any, model: str, lines: Sequence[Line]) -> None:
    """One row per setting: our mean with its interval, the paper's a little below."""
    axes = figure.subplots()
    places = range(len(lines))
    bars = [Z95 * (line.summary.se or 0.0) for line in lines]
    means = [line.summary.mean for line in lines]
    axes.errorbar(
        means, [at - 0.12 for at in places], xerr=bars, ls="", marker="o", color="C0", capsize=3, label="ours"
    )
    known = [(at + 0.12, line.cell.target) for at, line in zip(places, lines, strict=True) if line.cell.target]
    if known:
        spread = [Z95 * (target.se or 0.0) for _, target in known]
        errors, heights = [target.error for _, target in known], [at for at, _ in known]
        axes.errorbar(
            errors, heights, xerr=spread, ls="", marker="D", mfc="white", color="C3", capsize=3, label="paper"
        )
    axes.set_yticks(
        places, [f"{_series(line)}  {100 * line.cell.density:.3g}%  (n = {line.summary.n})" for line in lines]
    )
    axes.tick_params(labelsize=8)
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.grid(axis="x", alpha=0.25)
    axes.set_xlabel(ERROR)
    figure.legend(loc="outside right upper", fontsize=7)


def _sensitivity(figure: Any, model: str, lines: Sequence[Line]) -> None:
    """Error over prune rate and over momentum; momentum 0.99 diverges and is left out as in the paper."""
    panels = figure.subplots(1, 2)
    for axes, parameter, both in zip(
        panels, ("prune rate", "momentum"), (("cosine", "linear"), ("sparse", "dense")), strict=True
    ):
        for number, series in enumerate(both):
            own = [
                line for line in lines if (line.cell.label.startswith(parameter) and line.cell.label.endswith(series))
            ]
            own = sorted(own, key=lambda line: split_label(line.cell.label)[1])
            own = [line for line in own if split_label(line.cell.label)[1] != _LEFT_OUT]
            values = [split_label(line.cell.label)[1] for line in own]
            if own:
                _series_and_paper(axes, values, own, series, f"C{number}")
        axes.set_xlabel(parameter)
        axes.set_ylabel(ERROR)
        axes.grid(alpha=0.25)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=2)


def _series_and_paper(axes: Any, x: Sequence[float], own: Sequence[Line], name: str, color: str) -> None:
    """Our curve, filled and solid; the paper's, open and dotted, in the same colour."""
    bars = [Z95 * (line.summary.se or 0.0) for line in own]
    means = [line.summary.mean for line in own]
    axes.errorbar(x, means, bars, color=color, marker="o", ms=4, capsize=3, label=f"{name}, ours")
    paper = [(at, line.cell.target) for at, line in zip(x, own, strict=True) if line.cell.target is not None]
    if paper:
        spread = [Z95 * (target.se or 0.0) for _, target in paper]
        points = ([at for at, _ in paper], [target.error for _, target in paper])
        axes.errorbar(
            *points, spread, color=color, marker="s", ms=5, mfc="white", ls=":", capsize=3, label=f"{name}, paper"
        )


def _dense_band(axes: Any, line: Line) -> None:
    axes.axhline(line.summary.mean, color="black", linewidth=1, label=f"dense, ours (n = {line.summary.n})")
    if line.summary.interval is not None:
        axes.axhspan(*line.summary.interval, color="black", alpha=0.08)
    if line.cell.target is not None:
        axes.axhline(line.cell.target.error, color="black", linewidth=1, linestyle=":", label="dense, paper")


def _density_axis(axes: Any, densities: Sequence[float]) -> None:
    """Logarithmic where densities span much, with the densities themselves as ticks as far as they do not collide."""
    if not densities or densities[-1] / densities[0] < _LOG_FROM:
        return
    axes.set_xscale("log")
    ticks: list[float] = []
    for density in densities:
        if not ticks or density / ticks[-1] > 1.18:
            ticks.append(density)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xticks([], minor=True)


def _is_dense(line: Line) -> bool:
    return line.cell.config.sparse.method == "dense"


def _series(line: Line) -> str:
    """The label, with how it was computed if that is not plain masked training."""
    plain = line.execution in ("", "dense") or line.execution.startswith("masked")
    return line.cell.label if plain else f"{line.cell.label} ({line.execution.split(',')[0]})"


_KINDS = {"curve": _curves, "compression": _compression, "bars": _bars, "sensitivity": _sensitivity}
