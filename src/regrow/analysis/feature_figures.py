"""Specialisation drawn: per layer a histogram of the dense network to the left, of the sparse one to the right."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from regrow.analysis.features import BINS, histogram
from regrow.figure import blank, save

COLUMNS = 6


def draw_specialisation(
    dense: Mapping[str, np.ndarray], sparse: Mapping[str, np.ndarray], title: str, stem: Path
) -> list[Path]:
    """Write ``stem.svg`` and ``stem.png``."""
    columns = min(COLUMNS, len(dense))
    rows = math.ceil(len(dense) / columns)
    figure = blank(1.9 * columns + 0.6, 2.1 * rows + 0.9)
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
    height = BINS[1] - BINS[0]
    for axes, name in zip(grid.flat, dense, strict=False):
        for values, side, colour, label in ((dense[name], -1, "C0", "dense"), (sparse[name], 1, "C1", "sparse")):
            axes.barh(BINS[:-1], side * histogram(values), height, align="edge", color=colour, label=label)
            if len(values):
                axes.axhline(float(values.mean()), color=colour, linewidth=1, linestyle="--")
        axes.axvline(0, color="black", linewidth=0.6)
        # Counts go both ways from zero: show them without a sign.
        axes.xaxis.set_major_formatter(lambda value, _: f"{abs(value):g}")
        axes.locator_params(axis="x", nbins=4)
        axes.tick_params(labelsize=7)
        axes.set_title(name, fontsize=8)
    for axes in list(grid.flat)[len(dense) :]:
        axes.axis("off")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8)
    figure.suptitle(f"{title} (dashed: mean)", fontsize=10)
    figure.supylabel("specialisation S", fontsize=8)
    return save(figure, stem)
