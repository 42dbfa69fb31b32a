"""Heat maps layer x time, readable for three layers and for fifty."""

from __future__ import annotations

from typing import Any

import numpy as np

from regrow.report.draw import ACCENT, CAME, GONE, SOFT, big_number, look, new, to_svg
from regrow.report.history import History

_COLUMNS = 480
_WIDTH = 10.4
_LOW, _HIGH = "#eef6f4", "#0b4f4a"
_KEY_TITLE = {"fontsize": 8.5, "color": SOFT, "fontweight": "normal", "pad": 3}
_SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
_WIDE_RANGE = 4


def density_map(past: History, end: int) -> str:
    """Density of every layer over time, and beside it the last one."""
    from matplotlib.colors import LinearSegmentedColormap

    shares = 100 * past.densities
    with look("density"):
        figure, left, right, key = _areas(len(past.layers))
        colours = LinearSegmentedColormap.from_list("density", [_LOW, "#5fb3a8", _HIGH])
        image = _image(left, past, shares, end, colours, _scale(shares))
        _percent_key(figure.colorbar(image, cax=key, orientation="horizontal"), shares)
        _layer_axis(left, past.layers)
        right.set_yticks([])
        _bars(right, shares[-1], ACCENT, [f"{value:.3g}%" for value in shares[-1]], f"at step {past.steps[-1]:,}")
        right.set_xlim(0, 1.45 * max(shares[-1].max(), 1e-9))
        return to_svg(figure, "density", "Density of each layer over training steps")


def flow_map(past: History, end: int) -> str:
    """Net movement of weights into and out of every layer at each update, and beside it the sum over the run."""
    from matplotlib.colors import LinearSegmentedColormap, SymLogNorm

    moved = 100 * past.net / past.counts[1:].sum(1, keepdims=True)
    top = max(float(np.abs(moved).max()), 1e-6)
    with look("flow"):
        figure, left, right, key = _areas(len(past.layers))
        colours = LinearSegmentedColormap.from_list("flow", ["#8a3b04", GONE, "#fbfaf8", CAME, "#083f3b"])
        norm = SymLogNorm(linthresh=top / 50, vmin=-top, vmax=top, base=10)
        # An update's colour fills the time up to the next one; before the first nothing has moved.
        image = _image(left, past, np.vstack([np.zeros(moved.shape[1]), moved]), end, colours, norm)
        bar = figure.colorbar(image, cax=key, orientation="horizontal")
        ticks = [-top, -top / 10, 0, top / 10, top]
        _finish_key(bar, ticks, [f"{tick:+.2g}%" if tick else "0" for tick in ticks])
        key.set_title("net movement at an update, share of all present weights", **_KEY_TITLE)
        _layer_axis(left, past.layers)
        total = past.counts[-1] - past.counts[0]
        labels = [("+" if value > 0 else "") + big_number(int(value)) for value in total]
        right.set_yticks([])
        _bars(right, total, [CAME if value >= 0 else GONE for value in total], labels, "whole run")
        reach = max(float(np.abs(total).max()), 1.0)
        right.set_xlim(-1.75 * reach if (total < 0).any() else 0, 1.75 * reach)
        return to_svg(figure, "flow", "Net movement of weights between layers at each topology update")


def density_bars(names: list[str], densities: list[float]) -> str:
    """Densities of masks that never changed."""
    with look("densities"):
        figure, axes = new(_WIDTH, _height(len(names)) - 0.8)
        shares = [100 * density for density in densities]
        _layer_axis(axes, names)
        _bars(axes, np.array(shares), ACCENT, [f"{share:.3g}%" for share in shares], "density")
        axes.set_xlim(0, 1.1 * max(shares))
        return to_svg(figure, "densities", "Density of each layer")


def _height(layers: int) -> float:
    return 1.45 + max(0.17 * layers, 0.7)


def _areas(layers: int) -> tuple[Any, Any, Any, Any]:
    """The figure with a map, bars beside it, and a colour key above."""
    tall = _height(layers) - 0.9
    figure, ((key, corner), (left, right)) = new(
        _WIDTH, _height(layers), nrows=2, ncols=2, width_ratios=(4.2, 1), height_ratios=(0.1, tall)
    )
    corner.set_axis_off()
    return figure, left, right, key


def _image(axes: Any, past: History, values: np.ndarray, end: int, colours: Any, norm: Any) -> Any:
    """Values [moment, layer] as an image over steps; each holds until the next moment."""
    end = max(end, int(past.steps[-1]) + 1)
    columns = np.linspace(0, end, _COLUMNS, endpoint=False)
    at = np.searchsorted(past.steps, columns, side="right") - 1
    axes.grid(False)
    axes.set_xlabel("step")
    image = axes.imshow(
        values[at].T,
        aspect="auto",
        interpolation="none",
        extent=(0, end, len(past.layers) - 0.5, -0.5),
        cmap=colours,
        norm=norm,
    )
    axes.xaxis.set_major_formatter(lambda value, _: big_number(value))
    return image


def _scale(shares: np.ndarray) -> Any:
    from matplotlib.colors import LogNorm, Normalize

    low, high = float(shares.min()), float(shares.max())
    if low > 0 and high / low > _WIDE_RANGE:
        return LogNorm(low, high)
    return Normalize(0, max(high, 1e-9))


def _percent_key(bar: Any, shares: np.ndarray) -> None:
    low, high = float(shares.min()), float(shares.max())
    if low > 0 and high / low > _WIDE_RANGE:
        ticks = [t for t in _SHARES if low <= t <= high]
        _finish_key(bar, ticks, [f"{tick:g}%" for tick in ticks])
    else:
        ticks = [0, high / 2, high]
        _finish_key(bar, ticks, [f"{tick:.3g}%" for tick in ticks])
    bar.ax.set_title("density", **_KEY_TITLE)


def _finish_key(bar: Any, ticks: list[float], labels: list[str]) -> None:
    bar.set_ticks(ticks, labels=labels)
    bar.ax.minorticks_off()
    bar.ax.tick_params(labelsize=8, length=2)
    bar.outline.set_visible(False)


def _layer_axis(axes: Any, names: Any) -> None:
    axes.set_yticks(range(len(names)), names, fontsize=8.5 if len(names) <= 20 else 7.5)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)


def _bars(axes: Any, values: np.ndarray, colours: Any, labels: list[str], title: str) -> None:
    size = 8 if len(values) <= 20 else 6.5
    axes.barh(range(len(values)), values, height=0.72, color=colours, alpha=0.75)
    axes.set_ylim(len(values) - 0.5, -0.5)
    axes.set_xticks([])
    axes.grid(False)
    axes.spines[["bottom", "left"]].set_visible(False)
    axes.axvline(0, color=SOFT, linewidth=0.8)
    for index, (value, label) in enumerate(zip(values, labels, strict=True)):
        axes.annotate(
            label,
            (float(value), index),
            xytext=(3 if value >= 0 else -3, 0),
            textcoords="offset points",
            va="center",
            ha="left" if value >= 0 else "right",
            fontsize=size,
            color=SOFT,
        )
    axes.set_title(title, fontsize=8.5, color=SOFT, fontweight="normal")
