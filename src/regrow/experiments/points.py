"""Points of compression methods in the paper's first figure: one marker each, filled where run here, open where published."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from regrow.analysis.statistics import Z95
from regrow.experiments.experiment import Cell
from regrow.experiments.tables import Line
from regrow.experiments.targets import COMPETITORS

NAMES = {
    "obd": "Optimal brain damage (LeCun 1989)",
    "l-obs": "Layer-wise brain surgeon (Dong 2017)",
    "dns": "Dynamic network surgery (Guo 2016)",
    "variational-dropout": "Variational dropout (Molchanov 2017)",
    "soft-weight-sharing": "Soft weight-sharing (Ullrich 2017)",
    "lc": "Learning-compression (Carreira-Perpinan 2018)",
    "targeted-dropout": "Targeted dropout (Gomez 2018)",
    "l0": "L0 regularisation (Louizos 2018)",
    "bayesian-compression": "Bayesian compression (Louizos 2017)",
    "nest": "NeST (Dai 2017; published on distorted MNIST)",
    "movement": "Movement pruning (Sanh 2020)",
    "str": "STR (Kusupati 2020)",
}
"""What the figure calls a method; those of the paper as it does."""

_MARKERS = "ovs^D<P>Xphd*8"
_COLORS = ("C1", "C2", "C3", "C4", "C5", "C6", "C7", "C8", "C9", "navy", "darkgreen", "crimson", "black", "indigo")
Point = tuple[float, float]


def published(model: str, cells: Sequence[Cell]) -> dict[str, list[Point]]:
    """Name -> (density %, error %), of the paper's figure and of texts about methods that it leaves out."""
    found: dict[str, list[Point]] = {}
    for name, density, error in COMPETITORS.get(model, ()):
        found.setdefault(name, []).append((density, error))
    for cell in cells:
        name = NAMES.get(cell.label, "")
        if name and cell.target and name not in {n for n, *_ in COMPETITORS.get(model, ())}:
            found.setdefault(name, []).append((100 * cell.density, cell.target.error))
    return found


def scatter(axes: Any, lines: Sequence[Line], cells: Sequence[Cell]) -> None:
    """Draw all points, with an entry of the legend per method and two that say what open and filled mean."""
    known = published(cells[0].model, cells)
    own = {name: [line for line in lines if NAMES.get(line.cell.label) == name] for name in NAMES.values()}
    every = [*NAMES.values(), *(name for points in COMPETITORS.values() for name, *_ in points)]
    for number, name in enumerate(dict.fromkeys(every)):
        look = {
            "color": _COLORS[number % len(_COLORS)],
            "marker": _MARKERS[number % len(_MARKERS)],
            "ls": "",
            "zorder": 5,
        }
        open_points, ours = known.get(name, []), own.get(name, [])
        if open_points:
            label = {} if ours else {"label": name}
            axes.plot(*zip(*open_points, strict=True), mfc="white", ms=6, **look, **label)
        if ours:
            x, y = [100 * line.cell.density for line in ours], [line.summary.mean for line in ours]
            bars = [Z95 * (line.summary.se or 0.0) for line in ours]
            axes.errorbar(x, y, bars, label=name, ms=5, capsize=2, **look)
        for line in ours:
            for density, error in open_points:
                if abs(density - 100 * line.cell.density) < 1e-9:
                    axes.plot([density] * 2, [error, line.summary.mean], color=look["color"], lw=0.7, ls=":", zorder=4)
    epochs = sorted({line.cell.config.epochs for found in own.values() for line in found})
    length = f", {' or '.join(map(str, epochs))} epochs" if epochs else ""
    axes.plot([], [], marker="o", ls="", color="0.3", label=f"filled: run here{length}, and 95% interval")
    axes.plot([], [], marker="o", ls="", color="0.3", mfc="white", label="open: published")
