"""The demo's table, on the terminal and as a page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files as resources
from pathlib import Path

from rich.table import Table

from regrow.demo.measure import Row
from regrow.report import html

HEAD = ("network", "arm", "weights", "error", "ms/step", "peak MB", "file")


def table(rows: Sequence[Row]) -> Table:
    """For the terminal."""
    shown = Table()
    for column in HEAD:
        shown.add_column(column, justify="left" if column in ("network", "arm") else "right")
    for row in rows:
        shown.add_row(*cells(row), end_section=row.arm == "sparse")
    return shown


def cells(row: Row) -> tuple[str, ...]:
    """A row as text.

    Example:
        >>> cells(Row("LeNet", "dense", 1.3, 266200, 1.5, None, 1066400))
        ('LeNet', 'dense', '266,200', '1.30%', '1.50', '-', '1,066 kB')
    """
    memory = "-" if row.peak_mb is None else f"{row.peak_mb:.0f}"
    size = f"{row.file_bytes / 1000:,.0f} kB"
    return row.network, row.arm, f"{row.weights:,}", f"{row.error:.2f}%", f"{row.step_ms:.2f}", memory, size


def sentences(rows: Sequence[Row], data: str, machine: str) -> list[str]:
    """What was measured, and how."""
    lines = [
        f"Trained on {data}; weights are those of sparsifiable layers. One run each: an illustration, not a result. Learning rates are "
        "the presets'; density and epochs were picked among four settings by test error, within two minutes.",
        f"A step is forward, backward and optimizer on one thread of {machine}, batch 100, dense and sparse in turns, median of 15; "
        "dense at the faster of torch's two memory formats, sparse with growth windows counted in.",
        "Peak MB is what two steps need beyond an idle Python with torch: weights keep their dense shape while training, so it stays.",
    ]
    for dense, sparse in zip(rows[::2], rows[1::2], strict=True):
        lines.append(
            f"{dense.network}: {dense.weights / sparse.weights:.0f}x fewer weights, {dense.step_ms / sparse.step_ms:.1f}x the speed, "
            f"a file {dense.file_bytes / sparse.file_bytes:.1f}x smaller, error {sparse.error - dense.error:+.2f} points."
        )
    return lines


def next_commands(run: Path) -> list[str]:
    """What to type next."""
    return [
        "regrow train mnist-lenet300 --epochs 20                    # the paper's settings, shorter",
        f"regrow evaluate {run}",
        f"regrow export {run} --to model.safetensors",
        "regrow methods                                             # RigL, SET and the others, one word away",
        "regrow doctor                                              # what this machine offers",
    ]


def _left(texts: Sequence[str]) -> list[html.Cell]:
    """Cells of a page's table: the first two are words, the others numbers."""
    words, numbers = (list(map(escape, part)) for part in (texts[:2], texts[2:]))
    return [*((word, "name") for word in words), *numbers]


def page(rows: Sequence[Row], lines: Sequence[str], commands: Sequence[str], reports: Sequence[Path]) -> str:
    """The same as one HTML page, with links to the reports of the runs."""
    links = "".join(f'<li><a href="{escape(str(path))}">{escape(str(path.parent))}</a></li>' for path in reports)
    body = [
        html.section("table", "Side by side", html.table(_left(HEAD), map(_left, map(cells, rows)))),
        html.section("how", "What it says", *map(html.paragraph, lines)),
        html.section("runs", "Each run in detail", f"<ul>{links}</ul>"),
        html.section("next", "Next", html.code("\n".join(commands))),
    ]
    style = resources("regrow.report").joinpath("style.css").read_text()
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width,initial-scale=1">',
            f'<title>Dense and sparse · regrow</title><link rel="icon" href="data:,"><style>{style}</style></head>',
            '<body><header><p class="brand">regrow</p><h1>Dense and sparse, side by side</h1></header>',
            f"<main>{''.join(body)}</main></body></html>\n",
        ]
    )
