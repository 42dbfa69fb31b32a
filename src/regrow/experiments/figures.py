"""The paper's figures re-drawn: our points with error bars, the paper's beside them."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from regrow.analysis.statistics import Z95
from regrow.experiments.experiment import DIVERGING_MOMENTUM, Cell, Experiment, split_label
from regrow.experiments.points import NAMES, Point, published, scatter
from regrow.experiments.tables import Line
from regrow.figure import blank, save

ERROR = "test error (%), bars: 95% interval"
_LOG_FROM = 5.0
_TICKS = (0.1, 0.2, 0.5, 1, 1.5, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100)
_TITLE_WIDTH = 76


# Line and marker of our curves: the first execution of a setting, the second, ...
_WAYS = (("-", "o"), ("--", "^"), ("-.", "v"))
_PAPER = {"marker": "s", "ms": 4, "mfc": "white", "ls": ":", "lw": 1.2, "capsize": 2}


def draw(experiment: Experiment, table: Sequence[Line], folder: Path) -> list[Path]:
    """One figure per model that learned anything, as SVG and PNG, with all of the paper's points for it, whatever was run.

    Settings of which runs collapsed are named below the title: they have no point, or one of the rest alone.
    """
    written: list[Path] = []
    if experiment.figure == "none":
        return written  # a figure of its own among the analyses
    for model in dict.fromkeys(line.cell.model for line in table if line.summary.n):
        every = [line for line in table if line.cell.model == model]
        lines, cells = [line for line in every if line.summary.n], [c for c in experiment.cells() if c.model == model]
        figure = blank(*_size(experiment, lines, cells))
        _KINDS[experiment.figure](figure, lines, cells)
        title = f"{model}: {experiment.shows}"
        figure.axes[0].set_title("\n".join([title, *_collapsed(every, cells)]), fontsize=9, loc="left")
        written += save(figure, folder / f"{experiment.name}-{model}")
    return written


def _collapsed(lines: Sequence[Line], cells: Sequence[Cell]) -> list[str]:
    """A note of the settings of which runs collapsed, and how many; with densities where a label has several."""
    labels = [cell.label for cell in cells]
    gone = [line for line in lines if line.collapsed]
    several = {line.cell.label for line in gone if labels.count(line.cell.label) > 1}
    counts: dict[str, list[str]] = {}
    for line in gone:
        density = f"{_density(line.cell):.3g}% " if line.cell.label in several else ""
        count = f"{density}({line.collapsed} of {line.collapsed + line.summary.n})"
        counts.setdefault(_series(line), []).append(count)
    notes = [f"{name} {', '.join(found)}" for name, found in counts.items()]
    return textwrap.wrap(f"collapsed: {'; '.join(notes)}", _TITLE_WIDTH) if notes else []


def _size(experiment: Experiment, lines: Sequence[Line], cells: Sequence[Cell]) -> tuple[float, float]:
    if experiment.figure == "bars":
        return 7.5, 1.6 + 0.32 * len(_bar_rows(lines, cells))
    sizes = {"sensitivity": (9.5, 4.2), "compression": (10.0, 5.6)}
    return sizes.get(experiment.figure, (8.5, 4.8))


def _compression(figure: Any, lines: Sequence[Line], cells: Sequence[Cell]) -> None:
    """Sparse momentum's curves among the points of other compression methods."""
    points = [point for found in published(cells[0].model, cells).values() for point in found]
    curves = [line for line in lines if line.cell.label not in NAMES]
    others = [line for line in lines if line.cell.label in NAMES]
    points += [(_density(line.cell), line.summary.mean) for line in others]
    _curves(figure, curves, [cell for cell in cells if cell.label not in NAMES], points)
    scatter(figure.axes[0], others, cells)
    figure.legends.clear()
    _legend(figure, figure.axes[0])


def _curves(figure: Any, lines: Sequence[Line], cells: Sequence[Cell], points: Sequence[Point] = ()) -> None:
    """Error over density; a dense result is a horizontal band. Axes have room for further ``points``."""
    axes = figure.subplots()
    thin, known = [line for line in lines if not line.cell.is_dense], _published(cells)
    densities = [line.cell.density for line in thin] + [cell.density for cell in known if not cell.is_dense]
    _scale(axes.xaxis, [100 * density for density in densities] + [density for density, _ in points])
    errors = [line.summary.mean for line in lines] + [cell.target.error for cell in known if cell.target]
    _scale(axes.yaxis, errors + [error for _, error in points])
    for number, label in enumerate(dict.fromkeys(cell.label for cell in cells if not cell.is_dense)):
        _ours(axes, [line for line in thin if line.cell.label == label], _density, f"C{number % 10}")
        paper = [cell for cell in known if cell.label == label]
        _paper(axes, paper, _density, paper[0].shown if paper else "", f"C{number % 10}")
    _dense_bands(axes, [line for line in lines if line.cell.is_dense], [cell for cell in known if cell.is_dense])
    axes.set_xlabel("weights (%)")
    axes.set_ylabel(ERROR)
    axes.grid(alpha=0.25)
    _legend(figure, axes)


def _published(cells: Sequence[Cell]) -> list[Cell]:
    """The cells with a value of the paper; of two readings of one setting the first, lest its curve hide itself."""
    known = {(cell.density, cell.target): cell for cell in reversed(cells) if cell.target}
    return list(reversed(known.values()))


def _bar_rows(lines: Sequence[Line], cells: Sequence[Cell]) -> list[tuple[Cell, Line | None]]:
    """Our lines in the order of the cells, and between them what only the paper has."""
    rows: list[tuple[Cell, Line | None]] = []
    for cell in cells:
        own = [line for line in lines if (line.cell.label, line.cell.density) == (cell.label, cell.density)]
        rows += [(cell, line) for line in own]
        if not own and cell.target:
            rows.append((cell, None))
    return rows


def _bars(figure: Any, lines: Sequence[Line], cells: Sequence[Cell]) -> None:
    """One row per setting: our mean with its interval, the paper's a little below."""
    axes = figure.subplots()
    rows = list(enumerate(_bar_rows(lines, cells)))
    ours = [(at - 0.12, line.summary) for at, (_, line) in rows if line]
    bars = [Z95 * (summary.se or 0.0) for _, summary in ours]
    means, places = [summary.mean for _, summary in ours], [at for at, _ in ours]
    axes.errorbar(means, places, xerr=bars, ls="", marker="o", color="C0", capsize=3, label="ours")
    known = [(at + 0.12, cell.target) for at, (cell, _) in rows if cell.target]
    if known:
        spread = [Z95 * (target.se or 0.0) for _, target in known]
        errors, heights = [target.error for _, target in known], [at for at, _ in known]
        axes.errorbar(
            errors, heights, xerr=spread, ls="", marker="D", mfc="white", color="C3", capsize=3, label="paper"
        )
    axes.set_yticks([at for at, _ in rows], [_bar_name(cell, line) for _, (cell, line) in rows])
    axes.tick_params(labelsize=8)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(axis="x", alpha=0.25)
    axes.set_xlabel(ERROR)
    _legend(figure, axes)


def _bar_name(cell: Cell, line: Line | None) -> str:
    name = _series(line) if line else cell.shown
    return f"{name}  {100 * cell.density:.3g}%  ({f'n = {line.summary.n}' if line else 'paper only'})"


def _sensitivity(figure: Any, lines: Sequence[Line], cells: Sequence[Cell]) -> None:
    """Error over prune rate and over momentum; momentum 0.99 diverges and is left out as in the paper."""
    panels = figure.subplots(1, 2)
    for axes, parameter, both in zip(
        panels, ("prune rate", "momentum"), (("cosine", "linear"), ("sparse", "dense")), strict=True
    ):
        for number, series in enumerate(both):
            own = [line for line in lines if _is_point(line.cell, parameter, series)]
            known = [cell for cell in cells if cell.target and _is_point(cell, parameter, series)]
            _ours(axes, own, _value, f"C{number}", series)
            _paper(axes, known, _value, series, f"C{number}")
        axes.set_xlabel(parameter)
        axes.set_ylabel(ERROR)
        axes.grid(alpha=0.25)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=2)


def _is_point(cell: Cell, parameter: str, series: str) -> bool:
    name, value, kind = split_label(cell.label)
    return (name, kind) == (parameter, series) and value != DIVERGING_MOMENTUM


def _density(cell: Cell) -> float:
    return 100 * cell.density


def _value(cell: Cell) -> float:
    return split_label(cell.label)[1]


def _ours(axes: Any, lines: Sequence[Line], place: Callable[[Cell], float], color: str, name: str = "") -> None:
    """Our curves of a setting, filled: one per execution, told apart by line and marker."""
    executions = dict.fromkeys(line.execution for line in lines)
    for (style, marker), execution in zip(itertools.cycle(_WAYS), executions, strict=False):
        own = sorted((line for line in lines if line.execution == execution), key=lambda line: place(line.cell))
        bars, means = [Z95 * (line.summary.se or 0.0) for line in own], [line.summary.mean for line in own]
        shown = {"color": color, "marker": marker, "ms": 4, "ls": style, "lw": 1.5, "capsize": 2}
        label = f"{_way(name, execution) if name else _series(own[0])}, ours"
        axes.errorbar([place(line.cell) for line in own], means, bars, label=label, **shown)


def _paper(axes: Any, cells: Sequence[Cell], place: Callable[[Cell], float], name: str, color: str) -> None:
    """The paper's curve of a setting, open and dotted, in the colour of ours and a little to the right."""
    known = sorted(((place(cell), cell.target) for cell in cells if cell.target), key=lambda pair: pair[0])
    if not known:
        return
    x = [at for at, _ in known]
    aside = [at * 1.025 for at in x] if axes.get_xscale() == "log" else [at + 0.012 * (x[-1] - x[0]) for at in x]
    spread = [Z95 * (target.se or 0.0) for _, target in known]
    axes.errorbar(aside, [target.error for _, target in known], spread, color=color, label=f"{name}, paper", **_PAPER)


def _dense_bands(axes: Any, lines: Sequence[Line], cells: Sequence[Cell]) -> None:
    """The dense network, ours and the paper's, each with the band of its 95% interval."""
    for line in lines:
        axes.axhline(line.summary.mean, color="black", linewidth=1, label="dense, ours")
        if line.summary.interval is not None:
            axes.axhspan(*line.summary.interval, color="black", alpha=0.08, lw=0)
    for target in (cell.target for cell in cells if cell.target):
        axes.axhline(target.error, color="black", linewidth=1, linestyle=":", label="dense, paper")
        if target.se is not None:
            axes.axhspan(target.error - Z95 * target.se, target.error + Z95 * target.se, color="C7", alpha=0.2, lw=0)


def _scale(axis: Any, values: Sequence[float]) -> None:
    """Logarithmic with plain numbers where values span much."""
    if not values or min(values) <= 0 or max(values) / min(values) < _LOG_FROM:
        return
    getattr(axis.axes, f"set_{axis.axis_name}scale")("log")
    ticks = [tick for tick in _TICKS if 0.8 * min(values) <= tick <= 1.25 * max(values)]
    axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_ticks([], minor=True)


def _legend(figure: Any, axes: Any) -> None:
    """Beside the axes: our curves and the paper's, the dense network, single points, what their filling means."""
    handles, labels = axes.get_legend_handles_labels()
    curves, last = ("ours", "paper"), ("dense", "filled", "open")
    order = sorted(range(len(labels)), key=lambda i: (not labels[i].endswith(curves), labels[i].startswith(last)))
    chosen = [handles[i] for i in order], [labels[i] for i in order]
    figure.legend(*chosen, loc="outside right upper", fontsize=7)


def _series(line: Line) -> str:
    """The label, with how it was computed if that is not plain masked training."""
    return _way(line.cell.shown, line.execution)


def _way(name: str, execution: str) -> str:
    return name if execution in ("", "dense", "masked") else f"{name} ({execution})"


_KINDS = {"curve": _curves, "compression": _compression, "bars": _bars, "sensitivity": _sensitivity}
