"""Speed-up over density, one line per layer or model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regrow.bench.show import name_of
from regrow.errors import ConfigurationError

_COLOURS = 10  # before they repeat


def read_rows(files: Sequence[Path]) -> list[dict[str, Any]]:
    """The rows of several result files; without any row there is nothing to draw."""
    rows: list[dict[str, Any]] = []
    for file in files:
        try:
            rows += json.loads(file.read_text())["rows"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(f"{file} is not a result of `regrow bench ... --json`: {error}") from error
    if not rows:
        raise ConfigurationError("nothing to draw: name files written by `regrow bench layers --json FILE`")
    return rows


def draw(files: Sequence[Path], out: Path) -> Path:
    """Write the picture of all rows in ``files``; the format follows the name of ``out``."""
    from matplotlib.figure import Figure

    lines: dict[str, list[tuple[float, float]]] = {}
    rows = read_rows(files)
    for row in rows:
        lines.setdefault(name_of(row), []).append((100 * row["density"], row["ratio"]))
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    whole = {name_of(row) for row in rows if "layer" not in row}
    for index, name in enumerate(sorted(lines, key=lambda name: name not in whole)):  # networks first
        own: dict[str, Any] = {"linestyle": ("-", ":")[index // _COLOURS % 2]}
        own |= {"linewidth": 3, "markersize": 6, "zorder": 3} if name in whole else {"linewidth": 1.2, "markersize": 4}
        axes.plot(*zip(*sorted(lines[name]), strict=True), marker="o", label=name, **own)
    axes.axhline(1, color="0.4", linewidth=1, linestyle="--")
    axes.set_title(
        "forward and backward; above 1x sparse is faster; thick: whole networks", fontsize="medium", loc="left"
    )
    axes.set_xscale("log")
    axes.set_yscale("log")
    found = [x for points in lines.values() for x, _ in points]
    densities = [
        value for value in (1, 2, 5, 10, 20, 30, 50, 100) if min(found) <= 1.2 * value and value <= 1.2 * max(found)
    ]
    axes.set_xticks(densities, [f"{value:g}" for value in densities], minor=False)
    ratios = [value for value in (0.5, 1, 2, 5, 10, 20, 50) if _within(value, lines)]
    axes.set_yticks(ratios, [f"{value:g}x" for value in ratios], minor=False)
    axes.minorticks_off()
    axes.set_xlabel("weights present (%)")
    axes.set_ylabel("fastest dense time / sparse time")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1))  # lines cross every corner
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=150, bbox_inches="tight")
    return out


def _within(value: float, lines: dict[str, list[tuple[float, float]]]) -> bool:
    found = [y for points in lines.values() for _, y in points]
    return min(1.0, *found) / 1.5 <= value <= 1.5 * max(found)
