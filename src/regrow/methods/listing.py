"""The table of methods on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from regrow.methods.method import Method

ROOMY = 120
"""Columns of a terminal that has room for more than names and summaries."""


def show_methods(methods: Sequence[Method]) -> None:
    """Print name, paper and summary, and on a wide terminal what each method costs."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console()
    roomy = console.width >= ROOMY
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 2, 0, 0),
        pad_edge=False,
        show_edge=False,
        caption_justify="left",
        caption=_note(roomy),
    )
    table.add_column("method", no_wrap=True)
    table.add_column("paper")
    for head in ("what it does", *(("budget", "reads of missing weights", "extra memory") if roomy else ())):
        table.add_column(head)
    for m in methods:
        reads = " and ".join(sorted(m.needs - {"present momentum"})) or "nothing"
        costs = (m.budget, reads, m.extra_memory) if roomy else ()
        table.add_row(m.name, m.citation, m.summary, *costs)
    console.print(table)


def _note(roomy: bool) -> str:
    more = "" if roomy else f"; {ROOMY} columns or more also show budgets, gradients and memory"
    return f"regrow methods NAME: its options{more}"
