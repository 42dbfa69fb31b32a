"""``handle.plot()``: density of each layer and flow of weights between layers, as one picture."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from regrow.report.history import History, history

if TYPE_CHECKING:
    from regrow.handle import Handle

_LABELLED = 12


class Picture(Figure):
    """A figure that notebooks show by themselves, without pyplot."""

    def _repr_png_(self) -> bytes:
        drawn = io.BytesIO()
        self.savefig(drawn, format="png", dpi=110)
        return drawn.getvalue()


def sketch(handle: Handle) -> Picture:
    """Density of each layer over the updates, and the weights that each layer gained or lost at each; bars before the first update."""
    past = history(handle.journal)
    if past is None:
        figure = Picture(figsize=(6, 3), layout="constrained")
        _bars(figure.subplots(), handle)
        return figure
    figure = Picture(figsize=(11, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    _densities(left, past)
    _flow(right, past)
    if len(past.layers) <= _LABELLED:
        figure.legend(*left.get_legend_handles_labels(), loc="outside right upper", fontsize=8)
    return figure


def _bars(axes: Any, handle: Handle) -> None:
    rows = [row for row in handle.plan() if row.sparse]
    axes.barh([row.layer for row in rows], [100 * row.density for row in rows])
    axes.invert_yaxis()
    axes.set(xlabel="density, %", title="before the first topology update")


def _densities(axes: Any, past: History) -> None:
    for number, layer in enumerate(past.layers):
        axes.plot(past.steps, 100 * past.densities[:, number], label=layer)
    axes.set(xlabel="step", ylabel="density, %", yscale="log", title="density of each layer")


def _flow(axes: Any, past: History) -> None:
    """Gains stacked upwards and losses downwards; they cancel where the budget is constant."""
    steps = np.asarray(past.steps[1:], dtype=float)
    width = 0.7 * float(np.diff(past.steps).min())
    above, below = np.zeros(len(steps)), np.zeros(len(steps))
    for number in range(len(past.layers)):
        net = past.net[:, number]
        axes.bar(steps, net, width, bottom=np.where(net >= 0, above, below))
        above, below = above + np.maximum(net, 0), below + np.minimum(net, 0)
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set(xlabel="step", ylabel="weights gained", title="flow between layers")
