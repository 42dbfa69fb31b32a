"""Results beside the paper's: CSV, Markdown, LaTeX and terminal tables from the same rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regrow.experiments.experiment import Cell
from regrow.experiments.statistics import Summary, difference_in_se, summarise

HEADER = (
    "model",
    "setting",
    "weights %",
    "n",
    "error %",
    "SE",
    "95% interval",
    "paper",
    "paper SE",
    "difference in SE",
)


@dataclass(frozen=True)
class Line:
    """One cell's result."""

    cell: Cell
    summary: Summary

    @property
    def difference(self) -> float | None:
        """Distance to the paper's value in combined standard errors."""
        target = self.cell.target
        return None if target is None else difference_in_se(self.summary, target.error, target.se)

    def cells(self) -> tuple[str, ...]:
        """The line as text."""
        s, t = self.summary, self.cell.target
        interval = "" if s.interval is None else f"{s.interval[0]:.3f} .. {s.interval[1]:.3f}"
        return (
            self.cell.model,
            self.cell.label,
            f"{100 * self.cell.density:g}",
            str(s.n),
            f"{s.mean:.3f}",
            _number(s.se),
            interval,
            _number(t.error if t else None),
            _number(t.se if t else None),
            _number(self.difference, "+.1f"),
        )


def lines(cells: Sequence[Cell], errors: Mapping[str, Sequence[float]]) -> list[Line]:
    """A line per cell that has runs; ``errors`` maps a cell's configuration (without seed) to test errors in percent."""
    found = [(cell, errors.get(cell_key(cell), ())) for cell in cells]
    return [Line(cell, summarise(values)) for cell, values in found if values]


def cell_key(cell: Cell) -> str:
    """Identity of a cell's configuration whatever the seed."""
    from dataclasses import replace

    return replace(cell.config, seed=0).identity()


def as_csv(table: Sequence[Line]) -> str:
    """Comma-separated values."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    writer.writerows(line.cells() for line in table)
    return text.getvalue()


def as_markdown(table: Sequence[Line]) -> str:
    """A pipe table."""
    rows = [HEADER, tuple("---" for _ in HEADER), *(line.cells() for line in table)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def as_latex(table: Sequence[Line]) -> str:
    """A booktabs table."""
    body = [" & ".join(_escape(cell) for cell in line.cells()) + r" \\" for line in table]
    head = " & ".join(_escape(name) for name in HEADER) + r" \\"
    columns = "ll" + "r" * (len(HEADER) - 2)
    return "\n".join(
        [
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            head,
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


def as_rich(table: Sequence[Line], title: str) -> Any:
    """A terminal table."""
    from rich.table import Table

    shown = Table(title=title)
    for name in HEADER:
        shown.add_column(name, justify="left" if name in ("model", "setting") else "right")
    for line in table:
        shown.add_row(*line.cells())
    return shown


def _number(value: float | None, form: str = ".3f") -> str:
    return "" if value is None else format(value, form)


def _escape(text: str) -> str:
    return text.replace("%", r"\%").replace("_", r"\_")
