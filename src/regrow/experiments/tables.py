"""Results beside the paper's: CSV, Markdown, LaTeX and terminal tables from the same rows."""

from __future__ import annotations

import csv
import io
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from regrow.analysis.statistics import Summary, difference_in_se, summarise
from regrow.config import Config
from regrow.errors import StateError
from regrow.experiments.experiment import Cell
from regrow.experiments.rows import Row, learned, of_setting
from regrow.methods import build

HEADER = (
    "model",
    "setting",
    "weights %",
    "non-zeros",
    "n",
    "collapsed",
    "error %",
    "SE",
    "95% interval",
    "paper",
    "paper SE",
    "difference in SE",
    "length",
    "execution",
)
_TEXT = ("model", "setting", "execution")


@dataclass(frozen=True)
class Line:
    """One cell's result, with how it was computed: ``dense``, ``masked`` or ``sparse``.

    The summary is that of the runs that learned; ``collapsed`` counts the others. ``nonzeros`` are those of the whole network, layers that
    stay dense included, of which ``weights %`` knows nothing.
    """

    cell: Cell
    summary: Summary
    execution: str = ""
    collapsed: int = 0
    nonzeros: str = ""

    @property
    def computed(self) -> str:
        """The execution, and the tolerance of the growth window where the method asks for momentum of missing weights."""
        sparse = self.cell.config.sparse
        window = (
            f", window {sparse.window_tolerance:g}" if "momentum" in build(sparse.method, sparse.options).needs else ""
        )
        return self.execution + window

    @property
    def difference(self) -> float | None:
        """Distance to the paper's value in combined standard errors."""
        target = self.cell.target
        return None if target is None else difference_in_se(self.summary, target.error, target.se)

    def runs(self, rows: Iterable[Row]) -> list[Row]:
        """The rows that the line sums up: of its setting, computed its way, and not collapsed."""
        return [row for row in self.all_runs(rows) if learned(row)]

    def all_runs(self, rows: Iterable[Row]) -> list[Row]:
        """The collapsed ones too."""
        return [row for row in of_setting(self.cell.config, rows) if execution_of(row) == self.execution]

    def texts(self) -> tuple[str, ...]:
        """The line as text."""
        s, t = self.summary, self.cell.target
        interval = "" if s.interval is None else f"{s.interval[0]:.3f} .. {s.interval[1]:.3f}"
        return (
            self.cell.model,
            self.cell.label,
            f"{100 * self.cell.density:g}",
            self.nonzeros,
            str(s.n),
            str(self.collapsed),
            number(s.mean if s.n else None),
            number(s.se),
            interval,
            number(t.error if t else None),
            number(t.se if t else None),
            number(self.difference, "+.1f"),
            _length(self.cell.config),
            self.computed,
        )


def _length(config: Config) -> str:
    if config.max_steps:
        return f"{config.max_steps} steps"
    return f"{config.epochs} epoch{'s' * (config.epochs != 1)}"


def table_from_rows(cells: Sequence[Cell], rows: Iterable[Row]) -> list[Line]:
    """A line per cell that has runs; runs that were computed differently get lines of their own, never a common mean."""
    known = list(rows)
    table = []
    for cell in cells:
        groups: dict[str, dict[str, Row]] = defaultdict(dict)
        for row in of_setting(cell.config, known):
            group = groups[execution_of(row)]
            if str(row["seed"]) in group:
                raise StateError(
                    f"two rows for seed {row['seed']} of {cell.model}, {cell.label}, {100 * cell.density:g}% with "
                    f"{row['epochs']} epochs: remove one from runs.csv"
                )
            group[str(row["seed"])] = row
        table += [_line(cell, list(group.values()), how) for how, group in groups.items()]
    return table


def _line(cell: Cell, rows: Sequence[Row], execution: str) -> Line:
    errors = [float(row["test_error"]) for row in rows if learned(row)]
    return Line(cell, summarise(errors), execution, len(rows) - len(errors), _nonzeros(rows))


def _nonzeros(rows: Sequence[Row]) -> str:
    """Non-zero weights of the networks, as a range where they differ; nothing where not all is known."""
    counted = [row for row in rows if row.get("nonzeros")]  # runs that diverged have no result
    if not counted or any(row.get("dense_weights") in ("", None) for row in counted):
        return ""
    totals = [int(row["nonzeros"]) + int(row["dense_weights"]) for row in counted]
    low, high = min(totals), max(totals)
    return str(low) if low == high else f"{low} .. {high}"


def execution_of(row: Row) -> str:
    """How a row was computed; dense networks have no other way."""
    return "dense" if row["method"] == "dense" else row["execution"]


def as_csv(table: Sequence[Line]) -> str:
    """Comma-separated values."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    writer.writerows(line.texts() for line in table)
    return text.getvalue()


def as_markdown(table: Sequence[Line]) -> str:
    """A pipe table."""
    return markdown(HEADER, [line.texts() for line in table])


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A pipe table of texts.

    Example:
        >>> print(markdown(("a", "b"), [("1", "2")]), end="")
        | a | b |
        | --- | --- |
        | 1 | 2 |
    """
    every = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in every) + "\n"


def as_latex(table: Sequence[Line]) -> str:
    """A booktabs table."""
    body = [" & ".join(_escape(cell) for cell in line.texts()) + r" \\" for line in table]
    head = " & ".join(_escape(name) for name in HEADER) + r" \\"
    columns = "".join("l" if name in _TEXT else "r" for name in HEADER)
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
    """A terminal table of 80 columns: mean and SE together, interval and execution left to the files."""
    from rich import box
    from rich.table import Table

    models = {line.cell.model for line in table}
    alone = len(models) == 1
    shown = Table(
        title=f"{title} ({models.pop()})" if alone else title,
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    for name in ("setting",) if alone else ("model", "setting"):
        shown.add_column(name, no_wrap=name == "model")
    for name in ("weights", "n", "error % ± SE", "paper ± SE", "diff/SE"):
        shown.add_column(name, justify="right", no_wrap=name != "n")
    for line in table:
        target = line.cell.target
        paper = "" if target is None else with_se(target.error, target.se)
        ours = with_se(line.summary.mean, line.summary.se)
        weights, n = f"{100 * line.cell.density:.3g}%", count(line)
        names = (line.cell.label,) if alone else (line.cell.model, line.cell.label)
        shown.add_row(*names, weights, n, ours, paper, number(line.difference, "+.1f"))
    return shown


def count(line: Line) -> str:
    """How many runs a line sums up, and how many collapsed."""
    return f"{line.summary.n}, {line.collapsed} collapsed" if line.collapsed else str(line.summary.n)


def with_se(value: float, se: float | None, form: str = ".3f") -> str:
    """``1.530 ± 0.020``, or the value alone; nothing for the mean of no runs."""
    if math.isnan(value):
        return ""
    return format(value, form) if se is None else f"{value:{form}} ± {se:.3f}"


def number(value: float | None, form: str = ".3f") -> str:
    """A number as text, nothing for None."""
    return "" if value is None else format(value, form)


def _escape(text: str) -> str:
    for character in "&%#_":
        text = text.replace(character, "\\" + character)
    return text
