"""Matplotlib to inline SVG: one look, the same bytes for the same input, no reference to anything outside."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType

INK, SOFT, GRID = "#1f2933", "#66727f", "#e4e8ec"
TRAIN, VALIDATION, TEST = "#8aa4bf", "#0f766e", "#c2410c"
ACCENT, GONE, CAME = "#0f766e", "#b45309", "#0f766e"
MOST_POINTS = 500

_LOOK: dict[RcKeyType, str | float] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": "#b8c1ca",
    "axes.labelcolor": SOFT,
    "axes.titlecolor": INK,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.6,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}


@contextmanager
def look(name: str) -> Iterator[None]:
    """The common style; ids inside the drawing are derived from ``name`` alone."""
    import matplotlib

    with matplotlib.rc_context({**_LOOK, "svg.hashsalt": f"regrow-{name}"}):
        yield


def new(width: float, height: float, **options: Any) -> tuple[Any, Any]:
    """A figure and its axes, without pyplot and its global state."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(**options)


def to_svg(figure: Any, name: str, label: str) -> str:
    """The figure as an ``<svg>`` element for HTML, its ids prefixed so that many fit on one page.

    Args:
        figure: a matplotlib figure.
        name: of the drawing, unique on the page.
        label: what it shows, for readers that do not see.
    """
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text)
    text = text.replace("xlink:href", "href")
    text = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', text)
    text = re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", text)
    text = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", text)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    view = re.search(r'viewBox="([^"]+)"', text)
    box = view.group(1) if view else "0 0 1 1"
    return re.sub(r"<svg [^>]*>", f'<svg viewBox="{box}" role="img" aria-label="{label}">', text, count=1).strip()


def thin(x: Any, y: Any, most: int = MOST_POINTS) -> tuple[np.ndarray, np.ndarray]:
    """At most ``most`` points: means over equal blocks of neighbours, the last block ending at the last point."""
    x, y = np.asarray(x, float), np.asarray(y, float)
    if len(x) <= most:
        return x, y
    blocks = np.array_split(np.arange(len(x)), most)
    return np.array([x[b[-1]] for b in blocks]), np.array([y[b].mean() for b in blocks])


def big_number(value: float) -> str:
    """Short text for a large number.

    Example:
        >>> [big_number(v) for v in (950, 13310, 4.089e9, 1.5e15)]
        ['950', '13.3k', '4.09G', '1.5P']
    """
    for limit, unit in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit * 0.9995:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"
