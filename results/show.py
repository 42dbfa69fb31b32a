"""Write the tables of README.md and docs/results.md from the raw rows of `results/*/runs.csv`.

    python results/show.py          # after new runs
    python results/show.py --check  # exit code 1 if a table is not what the rows say

A table stands between `<!-- results: EXPERIMENT MODEL -->` and `<!-- end -->`; `*` means all models.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from regrow.experiments.catalogue import find
from regrow.experiments.rows import read_runs
from regrow.experiments.tables import Line, markdown, number, table_from_rows, with_se

HOME = Path(__file__).parent
DOCUMENTS = (HOME.parent / "README.md", HOME.parent / "docs" / "results.md")
HEADER = ("model", "setting", "weights %", "n", "error % ± SE", "paper ± SE", "difference in SE", "execution")
_BLOCK = re.compile(r"(<!-- results: (\S+) (\S+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def table(experiment: str, model: str) -> str:
    """The Markdown table of one experiment, from its raw rows."""
    cells = find(experiment).chosen(None if model == "*" else model, None, None)
    lines = table_from_rows(cells, read_runs(HOME / experiment / "runs.csv"))
    return markdown(HEADER, [_row(line) for line in lines])


def _row(line: Line) -> tuple[str, ...]:
    ours, paper = line.summary, line.cell.target
    return (
        line.cell.model,
        line.cell.label,
        f"{100 * line.cell.density:g}",
        str(ours.n),
        with_se(ours.mean, ours.se),
        with_se(paper.error, paper.se) if paper else "",
        number(line.difference, "+.1f"),
        line.execution,
    )


def refreshed(text: str) -> str:
    """A document with its tables computed anew."""
    return _BLOCK.sub(lambda found: found[1] + table(found[2], found[3]) + found[5], text)


def main() -> int:
    """Rewrite or check the documents."""
    stale = [path for path in DOCUMENTS if refreshed(path.read_text()) != path.read_text()]
    for path in stale:
        if "--check" in sys.argv[1:]:
            print(f"{path} does not show what the rows say: run python results/show.py")
        else:
            path.write_text(refreshed(path.read_text()))
    return int(bool(stale) and "--check" in sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
