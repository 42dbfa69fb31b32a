"""Tables as plain text, and as HTML for notebooks."""

from __future__ import annotations

import io
from html import escape
from typing import Any

_BETWEEN = 3
"""Padding and border of a column."""


def as_text(renderable: Any, width: int = 120) -> str:
    """What rich would print on a terminal of this width, without colours."""
    from rich.console import Console

    console = Console(width=width, record=True, file=io.StringIO())
    console.print(renderable)
    return console.export_text().rstrip()


def show(table: Any) -> None:
    """Print a table on the terminal, which wraps what is wider than itself; rich would leave the last columns out."""
    from rich.console import Console

    width = max(Console().width, _least(table.__rich__() if hasattr(table, "__rich__") else table))
    Console(width=width).print(table)


def _least(table: Any) -> int:
    """Characters of a line in which no column that must not wrap is cut; others can do with their head, or with what they ask for."""
    widths = []
    for column in table.columns:
        head = len(_plain(column.header))
        whole = max((len(_plain(cell)) for cell in column.cells), default=0) if column.no_wrap else 0
        widths.append(max(head, whole, column.min_width or 0) + _BETWEEN)
    return sum(widths) + 1


def as_html(table: Any) -> str:
    """A rich table as an HTML one: title, columns, caption; all text is escaped.

    Example:
        >>> from rich.table import Table
        >>> table = Table("layer", title="a < b")
        >>> table.add_row("fc1")
        >>> as_html(table)
        '<table><caption>a &lt; b</caption><thead><tr><th>layer</th></tr></thead><tbody><tr><td>fc1</td></tr></tbody></table>'
    """
    head = "".join(f"<th>{_plain(column.header)}</th>" for column in table.columns)
    rows = zip(*(column.cells for column in table.columns), strict=True)
    body = "".join(f"<tr>{''.join(f'<td>{_plain(cell)}</td>' for cell in row)}</tr>" for row in rows)
    title = f"<caption>{_plain(table.title)}</caption>" if table.title else ""
    below = "".join(f"<p>{_plain(line)}</p>" for line in str(table.caption or "").splitlines())
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}"


def _plain(cell: Any) -> str:
    from rich.text import Text

    return escape(Text.from_markup(str(cell)).plain)
