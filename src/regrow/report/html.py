"""A few HTML elements as functions; everything that comes from outside is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

NONE = "\u2013"
"""Stands where there is no number."""

Cell = str | tuple[str, str]
"""Text, or text and a CSS class. Text is taken as HTML: escape what is not a number."""


def section(anchor: str, title: str, *parts: str) -> str:
    """A section with a heading that the navigation can reach."""
    return f'<section id="{anchor}"><h2>{escape(title)}</h2>{"".join(parts)}</section>'


def paragraph(text: str, kind: str = "") -> str:
    """Plain text, escaped."""
    return f"<p{_class(kind)}>{escape(text)}</p>"


def notice(text: str) -> str:
    """Something the reader must know."""
    return paragraph(text, "notice")


def drawing(svg: str, caption: str = "", wide: bool = False) -> str:
    """A figure; a wide one scrolls sideways on narrow screens instead of shrinking."""
    below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f'<figure{_class("wide" if wide else "")}><div class="scroll">{svg}</div>{below}</figure>'


def side_by_side(drawings: Iterable[str]) -> str:
    """Figures in as many columns as fit."""
    return f'<div class="pair">{"".join(drawings)}</div>'


def table(
    head: Sequence[Cell], rows: Iterable[Sequence[Cell]], foot: Sequence[Cell] | None = None, kind: str = ""
) -> str:
    """A table that scrolls sideways where it does not fit."""
    body = "".join(f"<tr>{''.join(_cell('td', cell) for cell in row)}</tr>" for row in rows)
    top = "".join(_cell("th", cell) for cell in head)
    end = f"<tfoot><tr>{''.join(_cell('td', cell) for cell in foot)}</tr></tfoot>" if foot else ""
    return f'<div class="scroll"><table{_class(kind)}><thead><tr>{top}</tr></thead><tbody>{body}</tbody>{end}</table></div>'


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Names and values in two columns, escaped."""
    rows = [((escape(name), "name"), escape(value)) for name, value in pairs]
    body = "".join(f"<tr>{''.join(_cell('td', cell) for cell in row)}</tr>" for row in rows)
    return f'<div class="scroll"><table class="facts"><tbody>{body}</tbody></table></div>'


def card(title: str, value: str, note: str = "") -> str:
    """One figure of the headline."""
    below = f"<small>{escape(note)}</small>" if note else ""
    return f'<div class="card"><span>{escape(title)}</span><b>{escape(value)}</b>{below}</div>'


def code(text: str) -> str:
    """A block to copy."""
    return f"<pre>{escape(text)}</pre>"


def _cell(tag: str, cell: Cell) -> str:
    text, kind = (cell, "") if isinstance(cell, str) else cell
    return f"<{tag}{_class(kind)}>{text}</{tag}>"


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
