"""A race as table, plot and one HTML file."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from importlib.resources import files as resources
from pathlib import Path
from typing import Any

from regrow.figure import save
from regrow.files import write_atomically
from regrow.race.entries import DENSE
from regrow.race.standing import Row, Standing, shown_levels, unbeaten
from regrow.report import draw, html

AXES = (("seconds", "training seconds"), ("epoch", "epochs"), ("macs", "training MACs"))
_COLUMNS = (
    "Means over n runs, ± standard error. MACs left: multiply-accumulates of the forward pass at the end, of dense. Seconds and work "
    "(multiply-accumulates of the whole training): beside those of dense. Unbeaten: no other setting has less error and fewer seconds. "
    "s to x%: seconds until the error on held-out images was x% for the first time, if all runs came so far."
)


def cells_of(lines: Sequence[Standing], rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Head and lines of the table."""
    levels = shown_levels(rows)
    front, dense = unbeaten(lines), next((line for line in lines if line.setting == DENSE), None)
    timed = any(line.as_run is not None for line in lines)
    head = [
        "setting",
        "n",
        "weights",
        "MACs left",
        "steps",
        "error %",
        "seconds",
        "of dense",
        *(["s as run"] if timed else []),
        "work of dense",
        "unbeaten",
    ]
    body = []
    for line in lines:
        body.append(
            [
                line.setting,
                f"{line.seeds}" + (f", {line.diverged} diverged" if line.diverged else ""),
                f"{line.density:.2%}",
                html.NONE if line.macs_share is None else f"{line.macs_share:.2%}",
                f"{line.step:,}",
                _error(line),
                f"{line.seconds:,.1f}",
                html.NONE if dense is None else f"{line.seconds / dense.seconds:.3f}",
                *([html.NONE if line.as_run is None else f"{line.as_run:,.1f}"] if timed else []),
                html.NONE if dense is None else f"{line.macs / dense.macs:.3f}",
                "yes" if line.setting in front else "",
                *(f"{line.reached[level]:,.1f}" if level in line.reached else html.NONE for level in levels),
            ]
        )
    return [*head, *(f"s to {level:g}%" for level in levels)], body


def markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """The table as Markdown."""
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"


def write_outcome(folder: Path, lines: Sequence[Standing], rows: Sequence[Row], about: dict[str, str]) -> list[Path]:
    """``race.md``, ``race.svg``, ``race.png`` and ``race.html``."""
    head, body = cells_of(lines, rows)
    note = "".join(f"{name}: {value}\n\n" for name, value in about.items())
    write_atomically(folder / "race.md", (note + markdown(head, body)).encode())
    with draw.look("race"):
        figure = _figure(rows)
        written = save(figure, folder / "race")
        svg = draw.to_svg(figure, "race", "Error over training seconds, epochs and multiply-accumulates")
    page = _page(svg, head, body, about)
    write_atomically(folder / "race.html", page.encode())
    return [folder / "race.md", *written, folder / "race.html"]


def _error(line: Standing) -> str:
    if line.error is None:
        return html.NONE
    spread = "" if line.spread is None else f" ± {line.spread:.2f}"
    return f"{line.error:.2f}{spread}" + ("" if line.tested else " (held-out images)")


def _figure(rows: Sequence[Row]) -> Any:
    figure, axes = draw.new(12, 3.8, ncols=3, sharey=True)
    for (key, label), one in zip(AXES, axes, strict=True):
        _curves(one, key, label, rows)
    axes[0].set_ylabel("error on held-out images (%)")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=3)
    return figure


def _curves(axis: Any, key: str, label: str, rows: Sequence[Row], called: Callable[[str], str] = str) -> None:
    """One line per run, one colour per setting, which the legend has as it is ``called``."""
    power = _power(rows) if key == "macs" else 0
    for index, name in enumerate(dict.fromkeys(row["setting"] for row in rows)):
        for seed in dict.fromkeys(row["seed"] for row in rows if row["setting"] == name):
            own = [r for r in rows if r["setting"] == name and r["seed"] == seed and r["error"] is not None]
            x = [row[key] / 10**power for row in own]
            first = seed == min(row["seed"] for row in rows if row["setting"] == name)
            axis.plot(
                x, [row["error"] for row in own], color=f"C{index}", marker=".", label=called(name) if first else None
            )
    axis.set_xlabel(f"{label} (10^{power})" if power else label)
    axis.set_yscale("log")
    for which in (axis.yaxis.set_major_formatter, axis.yaxis.set_minor_formatter):
        which(lambda value, _: f"{value:g}")  # not 4 x 10^1


def _power(rows: Sequence[Row]) -> int:
    """Thousands, millions, ...: as a power of ten, so that the axis of work has short numbers.

    Example:
        >>> _power([{"macs": 4e8}, {"macs": 16e9}])
        9
    """
    return 3 * int(math.log10(max((row["macs"] for row in rows), default=1.0) or 1.0) / 3)


def in_words(setting: str) -> str:
    """A setting for readers who do not know how it is written.

    Example:
        >>> in_words("dense"), in_words("rigl@0.1:macs=0.05:warmup=0.5")
        ('dense', 'rigl, 10% of the weights, 5% of the MACs, warmup=0.5')
    """
    method, _, rest = setting.partition("@")
    if not rest:
        return setting
    density, *options = rest.split(":")
    words = [f"{100 * float(density):.3g}% of the weights"]
    for option in options:
        key, _, value = option.partition("=")
        words.append(f"{100 * float(value):.3g}% of the MACs" if key == "macs" else option)
    return ", ".join([method, *words])


def write_picture(path: Path, rows: Sequence[Row], title: str) -> list[Path]:
    """Error over training seconds alone, as ``path`` with .svg and .png."""
    with draw.look("race-picture"):
        figure, axis = draw.new(7.2, 3.6)
        _curves(axis, "seconds", "training seconds", rows, in_words)
        axis.set_ylabel("error on held-out images (%)")
        axis.set_title(title)
        axis.legend(loc="upper right")
        return save(figure, path)


def _cells(line: Sequence[str]) -> list[html.Cell]:
    """The setting is a word, the rest are numbers."""
    return [(escape(line[0]), "name"), *map(escape, line[1:])]


def _page(svg: str, head: Sequence[str], body: Sequence[Sequence[str]], about: dict[str, str]) -> str:
    title = f"Race: {about.get('model', '')} on {about.get('data', '')}"
    parts = [
        html.section(
            "curves",
            "Error over time, epochs and work",
            html.drawing(svg, "One line per run; lower left is better.", wide=True),
        ),
        html.section(
            "table",
            "Standings",
            html.table(_cells(head), map(_cells, body), kind="layers"),
            html.paragraph(_COLUMNS, "soft"),
        ),
        html.section("about", "How it was run", html.facts(about.items())),
    ]
    style = resources("regrow.report").joinpath("style.css").read_text()
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<title>{escape(title)} · regrow</title><link rel="icon" href="data:,"><style>{style}</style></head><body>'
        f'<header><p class="brand">regrow</p><h1>{escape(title)}</h1></header><main>{"".join(parts)}</main></body></html>\n'
    )
