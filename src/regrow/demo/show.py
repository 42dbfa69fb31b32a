"""The demo's table, on the terminal and as a page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files as resources
from pathlib import Path

from rich.table import Table

from regrow.demo.measure import Row
from regrow.memory import readable
from regrow.report import html

HEAD = ("network", "trained", "weights", "error", "ms/step", "memory", "file")


def table(rows: Sequence[Row]) -> Table:
    """For the terminal."""
    shown = Table()
    for column in HEAD:
        shown.add_column(column, justify="left" if column in ("network", "trained") else "right")
    for row in rows:
        shown.add_row(*cells(row), end_section=row.arm == "sparse")
    return shown


def cells(row: Row) -> tuple[str, ...]:
    """A row as text.

    Example:
        >>> cells(Row("LeNet", "dense", 1.3, 266200, 1.5, 3672920, 1066400))
        ('LeNet', 'dense', '266,200', '1.30%', '1.50', '3.7 MB', '1,066 kB')
    """
    size = f"{row.file_bytes / 1000:,.0f} kB"
    error, memory = f"{row.error:.2f}%", readable(row.memory_bytes)
    return row.network, row.arm, f"{row.weights:,}", error, f"{row.step_ms:.2f}", memory, size


def sentences(rows: Sequence[Row], data: str, machine: str) -> list[str]:
    """What came out, then how it was measured."""
    lines = [
        f"{dense.network}: {dense.weights / sparse.weights:.0f}x fewer weights, {dense.step_ms / sparse.step_ms:.1f}x the speed, "
        f"a file {dense.file_bytes / sparse.file_bytes:.1f}x smaller, "
        f"{sparse.memory_bytes / dense.memory_bytes:.2f}x the memory in training, error {sparse.error - dense.error:+.2f} points."
        for dense, sparse in zip(rows[::2], rows[1::2], strict=True)
    ]
    return [
        *lines,
        f"Data: {data}. Error: on test images, after one run each; an illustration, not a result. Learning rates are the presets'; "
        "density and epochs were picked among four settings by test error.",
        f"Step: forward, backward and optimizer, batch 100, one thread of {machine}; dense and sparse in turns, median of 15. Dense runs "
        "in the faster of torch's two memory formats; sparse includes its growth windows.",
        f"Memory: weights, gradients, optimizer state, masks, lists of the kernels and activations of a batch, counted. {_compact(rows)}",
    ]


def _compact(rows: Sequence[Row]) -> str:
    """What the memory of the sparse arms could be."""
    sizes = [readable(row.compact_bytes) for row in rows if row.compact_bytes is not None]
    if not sizes:
        return "Weights keep their dense shape."
    less = f"with --storage compact the sparse networks take {' and '.join(sizes)}, and steps somewhat longer."
    return f"Weights keep their dense shape; {less}"


def next_commands(run: Path) -> list[str]:
    """What to type next."""
    return [
        "regrow train mnist-lenet300 --epochs 20                    # the paper's schedule, shorter",
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
    links = "".join(
        f'<li><a href="{escape(str(path))}">{escape(row.network)}, {row.arm}</a></li>'
        for path, row in zip(reports, rows, strict=True)
    )
    outcome, measured = lines[: len(rows) // 2], lines[len(rows) // 2 :]
    body = [
        html.section(
            "table",
            "What came out",
            *map(html.paragraph, outcome),
            html.table(_left(HEAD), map(_left, map(cells, rows))),
        ),
        html.section("how", "How it was measured", *map(html.paragraph, measured)),
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
