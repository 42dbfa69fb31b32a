"""How each layer is computed, and why: rows for programs, a table for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

from regrow.text import as_html, as_text


@dataclass(frozen=True)
class Choice:
    """How one layer is computed, and why.

    Milliseconds are of forward + backward, averaged over steps inside and outside growth windows; ``break_even`` is the density up
    to which the sparse kernels win on this layer alone. None where nothing was measured.
    """

    layer: str
    density: float
    execution: str
    reason: str
    dense_ms: float | None = None
    sparse_ms: float | None = None
    break_even: float | None = None


@dataclass(frozen=True)
class Explanation(Sequence[Choice]):
    """The rows, and a table when printed. ``note`` says what was measured, where and for how long."""

    rows: tuple[Choice, ...]
    title: str
    note: str = ""

    @overload
    def __getitem__(self, index: int) -> Choice: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Choice, ...]: ...
    def __getitem__(self, index: int | slice) -> Choice | tuple[Choice, ...]:
        """A row."""
        return self.rows[index]

    def __len__(self) -> int:
        """Number of layers."""
        return len(self.rows)

    def __rich__(self) -> Any:
        """The table for a terminal or notebook."""
        from rich.markup import escape
        from rich.table import Table

        table = Table(title=self.title, caption=escape(self.note) or None, caption_justify="left")
        for column in ("layer", "density", "dense ms", "sparse ms", "choice", "reason"):
            table.add_column(column, justify="right" if column in ("density", "dense ms", "sparse ms") else "left")
        for row in self.rows:
            times = (_milliseconds(row.dense_ms), _milliseconds(row.sparse_ms))
            table.add_row(escape(row.layer), f"{row.density:.2%}", *times, row.execution, escape(row.reason))
        return table

    def __str__(self) -> str:
        """The table as text."""
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self.__rich__())


def _milliseconds(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}" if value < 100 else f"{value:.0f}"
