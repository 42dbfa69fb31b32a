"""The paper's figures re-drawn: our points with error bars, the paper's beside them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regrow.experiments.experiment import Experiment, split_label
from regrow.experiments.statistics import Z95
from regrow.experiments.tables import Line
from regrow.experiments.targets import COMPETITORS
from regrow.figure import blank, save

ERROR = "test error (%), bars: 95% interval"
_LOG_FROM = 5.0
_TICKS = (0.1, 0.2, 0.5, 1, 1.5, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100)
_LEFT_OUT = 0.99
_MARKERS = "xv^<>PX*hd8"


def draw(experiment: Experiment, table: Sequence[Line], folder: Path) -> list[Path]:
    """One figure per model, as SVG and PNG; what never learned has no point."""
    written, table = [], [line for line in table if line.summary.n]
    for model in dict.fromkeys(line.cell.model for line in table):
        lines = [line for line in table if line.cell.model == model]
        figure = blank(*_size(experiment, lines))
        figure.set_label(experiment.figure)
        _KINDS[experiment.figure](figure, model, lines)
        figure.axes[0].set_title(f"{model}: {experiment.shows}", fontsize=9, loc="left")
        written += save(figure, folder / f"{experiment.name}-{model}")
    return written


def _size(experiment: Experiment, lines: Sequence[Line]) -> tuple[float, float]:
    if experiment.figure == "bars":
        return 7.5, 1.6 + 0.32 * len(lines)
    return (9.5, 4.2) if experiment.figure == "sensitivity" else (8.5, 4.8)


def _curves(figure: Any, model: str, lines: Sequence[Line]) -> None:
    """Error over density; a dense result is a horizontal band."""
    axes = figure.subplots()
    thin = [line for line in lines if not _is_dense(line)]
    points = COMPETITORS.get(model, ()) if figure.get_label() == "compression" else ()
    _scale(axes.xaxis, [100 * line.cell.density for line in thin] + [density for _, density, _ in points])
    _scale(axes.yaxis, [line.summary.mean for line in lines] + [error for _, _, error in points])
    for number, name in enumerate(dict.fromkeys(map(_series, thin))):
        own = sorted((line for line in thin if _series(line) == name), key=lambda line: line.cell.density)
        _series_and_paper(axes, [100 * line.cell.density for line in own], own, name, f"C{number}")
    for line in lines:
        if _is_dense(line):
            _dense_band(axes, line)
    _competitors(axes, points)
    axes.set_xlabel("weights (%)")
    axes.set_ylabel(ERROR)
    axes.grid(alpha=0.25)
    _legend(figure, axes)


def _competitors(axes: Any, points: Sequence[tuple[str, float, float]]) -> None:
    """The compression methods of the paper's figure, above the curves, which some of them touch."""
    for number, name in enumerate(dict.fromkeys(name for name, _, _ in points)):
        own = [(density, error) for other, density, error in points if other == name]
        x, y = zip(*own, strict=True)
        color = f"C{1 + number % 9}"
        axes.plot(x, y, marker=_MARKERS[number % len(_MARKERS)], ls="", color=color, label=name, zorder=5)


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
    _legend(figure, axes)


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
    """Our curve, filled and solid; the paper's, open and dotted, in the same colour and a little to the right."""
    bars = [Z95 * (line.summary.se or 0.0) for line in own]
    means = [line.summary.mean for line in own]
    axes.errorbar(x, means, bars, color=color, marker="o", ms=4, lw=1.5, capsize=2, label=f"{name}, ours")
    aside = [at * 1.025 for at in x] if axes.get_xscale() == "log" else [at + 0.012 * (max(x) - min(x)) for at in x]
    paper = [(at, line.cell.target) for at, line in zip(aside, own, strict=True) if line.cell.target is not None]
    if paper:
        spread = [Z95 * (target.se or 0.0) for _, target in paper]
        points = ([at for at, _ in paper], [target.error for _, target in paper])
        style = {"marker": "s", "ms": 4, "mfc": "white", "ls": ":", "lw": 1.2, "capsize": 2}
        axes.errorbar(*points, spread, color=color, label=f"{name}, paper", **style)


def _dense_band(axes: Any, line: Line) -> None:
    axes.axhline(line.summary.mean, color="black", linewidth=1, label="dense, ours")
    if line.summary.interval is not None:
        axes.axhspan(*line.summary.interval, color="black", alpha=0.08)
    if line.cell.target is not None:
        axes.axhline(line.cell.target.error, color="black", linewidth=1, linestyle=":", label="dense, paper")


def _scale(axis: Any, values: Sequence[float]) -> None:
    """Logarithmic with plain numbers where values span much."""
    if not values or min(values) <= 0 or max(values) / min(values) < _LOG_FROM:
        return
    getattr(axis.axes, f"set_{axis.axis_name}scale")("log")
    ticks = [tick for tick in _TICKS if 0.8 * min(values) <= tick <= 1.25 * max(values)]
    axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_ticks([], minor=True)


def _legend(figure: Any, axes: Any) -> None:
    """Beside the axes: our curves and the paper's, the dense network, single points."""
    handles, labels = axes.get_legend_handles_labels()
    curves = ("ours", "paper")
    order = sorted(range(len(labels)), key=lambda i: (not labels[i].endswith(curves), labels[i].startswith("dense")))
    chosen = [handles[i] for i in order], [labels[i] for i in order]
    figure.legend(*chosen, loc="outside right upper", fontsize=7)


def _is_dense(line: Line) -> bool:
    return line.cell.config.sparse.method == "dense"


def _series(line: Line) -> str:
    """The label, with how it was computed if that is not plain masked training."""
    plain = line.execution in ("", "dense") or line.execution.startswith("masked")
    return line.cell.label if plain else f"{line.cell.label} ({line.execution.split(',')[0]})"


_KINDS = {"curve": _curves, "compression": _curves, "bars": _bars, "sensitivity": _sensitivity}
