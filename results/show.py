"""Write the tables of docs/ from the raw rows of `results/*/runs.csv`.

    python results/show.py          # after new runs
    python results/show.py --check  # exit code 1 if a table is not what the rows say
    python results/show.py --picture  # also the figures of races, docs/race*.png, from results/race

A table stands between `<!-- results: EXPERIMENT MODEL -->` and `<!-- end -->`; `*` means all models, `MODEL:curves` and
`MODEL:others` the two parts of figure 1. `probes *` is the table of single
changes to a setting, described in `results/probes/probes.toml`, `stability *` how often LeNet-5-Caffe collapses under them
(`results/stability/stability.toml`); `defaults *` what other defaults of sparse momentum do to the error, seed by seed;
`race NAME` the standings of `results/race/NAME`; `EXPERIMENT/ANALYSIS *` is what
`regrow reproduce` wrote as an analysis of an experiment; `speed:ISA DENSITIES` (in percent, `5,10,goals`), `speed:ISA masks` and
`speed:ISA overhead` those of the records in `benchmarks/results/ISA/`, measured with the kernels of that instruction set.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

from regrow.analysis.statistics import student_interval, summarise
from regrow.bench import summary
from regrow.experiments.analyses.windows import dense_share, error_pairs
from regrow.experiments.catalogue import find
from regrow.experiments.experiment import Cell
from regrow.experiments.points import NAMES
from regrow.experiments.rows import learned, read_runs
from regrow.experiments.tables import Line, count, markdown, number, table_from_rows, with_se
from regrow.race import page, stored

HOME = Path(__file__).parent
PICTURES = {"alexnet-s-5-epochs": ("race", "five epochs"), "alexnet-s-20-epochs": ("race-20-epochs", "twenty epochs")}
"""Races that are drawn: the picture's name in docs/, and how long they were."""
DENSITY = 0.05
PAGES = ("results", "probes", "benchmarks", "growth_window", "execution", "compact")
DOCUMENTS = tuple(HOME.parent / "docs" / f"{page}.md" for page in PAGES)
HEADER = (
    "model",
    "setting",
    "weights %",
    "non-zeros",
    "n",
    "error % ± SE",
    "paper ± SE",
    "difference in SE",
    "execution",
)
_BLOCK = re.compile(r"(<!-- results: (\S+) (\S+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def table(experiment: str, model: str) -> str:
    """The Markdown table of one experiment, from its raw rows."""
    if experiment == "probes":
        return probes()
    if experiment == "stability":
        return stability()
    if experiment == "defaults":
        return defaults()
    if experiment == "race":
        found = stored.read(HOME / "race" / model)
        return page.markdown(*page.cells_of(found.lines, found.rows))
    if "/" in experiment:
        return (HOME / f"{experiment}.md").read_text()
    if experiment.startswith("speed:"):
        records = HOME.parent / "benchmarks" / "results" / experiment.removeprefix("speed:")
        own = {"masks": summary.masks, "overhead": summary.overhead}
        return own[model](records) if model in own else summary.table(records, model)
    model, _, part = model.partition(":")
    cells = find(experiment).chosen(None if model == "*" else model, None, None)
    if part:
        cells = [cell for cell in cells if (cell.label in NAMES) == (part == "others")]
    lines = table_from_rows(cells, read_runs(HOME / experiment / "runs.csv"))
    rows = [HEADER, *map(_row, lines)]
    if len({line.cell.model for line in lines}) == 1:
        rows = [row[1:] for row in rows]  # the heading above the table names it
    return markdown(rows[0], rows[1:])


def _row(line: Line) -> tuple[str, ...]:
    ours, paper = line.summary, line.cell.target
    return (
        line.cell.model,
        line.cell.shown,
        f"{100 * line.cell.density:g}",
        line.nonzeros,
        count(line),
        with_se(ours.mean, ours.se),
        with_se(paper.error, paper.se) if paper else "",
        number(line.difference, "+.1f"),
        line.computed,
    )


def probes() -> str:
    """The Markdown table of single changes, beside what the paper's figures have with as many weights."""
    described = tomllib.loads((HOME / "probes" / "probes.toml").read_text())
    rows = []
    for name, probe in described.items():
        runs = read_runs(HOME / "probes" / f"{name}.csv")
        ours, total = summarise([float(run["test_error"]) for run in runs if learned(run)]), probe["weights"]
        papers = (_paper(experiment, total) for experiment in ("mnist-compression", "mnist-methods"))
        row = probe["change"], f"{100 * total:g}", str(ours.n), with_se(ours.mean, ours.se), *papers
        rows.append((*row, f"`{probe.get('script', probe['command'])}`"))
    return markdown(("change", "weights %", "n", "error % ± SE", "figure 1", "figure 3", "options"), rows)


def stability() -> str:
    """The Markdown table of how many runs learned under single changes, and with which error."""
    described = tomllib.loads((HOME / "stability" / "stability.toml").read_text())
    rows = []
    for name, change in described.items():
        runs = read_runs(HOME / "stability" / f"{name}.csv")
        errors = [float(run["test_error"]) for run in runs if learned(run)]
        found = summarise(errors)
        counts = str(len(runs)), str(len(runs) - len(errors))
        rows.append((change["change"], *counts, with_se(found.mean, found.se), f"`{change['command']}`"))
    return markdown(("change", "runs", "collapsed", "error of the others % ± SE", "options"), rows)


def defaults() -> str:
    """The Markdown table of gentle growth with short windows against the paper's letter: LeNet-300-100 with 5%, the same seeds."""
    cells = [cell for cell in find("mnist-compression").chosen("lenet300") if cell.label == "sparse momentum"]
    letter = _changed(next(cell for cell in cells if cell.density == DENSITY), execution="sparse")
    gentle = _changed(letter, window_tolerance=0.1, options={"grown_momentum": "auto", "warmup": 0.5})
    rows = [row for name in ("mnist-compression/runs", "defaults/gentle") for row in read_runs(HOME / f"{name}.csv")]
    pairs = error_pairs(letter, gentle, rows)
    differences = [new - old for new, old in pairs.values()]
    apart, (low, high) = summarise(differences), student_interval(differences)
    compared = with_se(apart.mean, apart.se, "+.3f"), f"{low:+.3f} .. {high:+.3f}"
    lines = []
    for which, (label, cell) in enumerate((("default", gentle), ("the paper's letter", letter))):
        error = summarise([pair[which] for pair in pairs.values()])
        line = label, str(error.n), with_se(error.mean, error.se), *(compared if cell is gentle else ("", ""))
        lines.append((*line, f"{100 * dense_share(cell.config):.1f}"))
    header = "setting", "n", "error % ± SE", "difference ± SE", "95% interval", "steps with dense gradients %"
    return markdown(header, lines)


def _changed(cell: Cell, **changes: Any) -> Cell:
    return replace(cell, config=replace(cell.config, sparse=replace(cell.config.sparse, **changes)))


def _paper(experiment: str, density: float) -> str:
    """Sparse momentum's error on LeNet-300-100 in a figure of the paper."""
    wanted = ("lenet300", "sparse-momentum", density)
    for cell in find(experiment).cells():
        if cell.target and (cell.model, cell.config.sparse.method, cell.density) == wanted:
            return with_se(cell.target.error, cell.target.se)
    return ""


def refreshed(text: str) -> str:
    """A document with its tables computed anew."""
    return _BLOCK.sub(lambda found: found[1] + table(found[2], found[3]) + found[5], text)


def main() -> int:
    """Rewrite or check the documents."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, say which documents are stale")
    parser.add_argument("--picture", action="store_true", help="draw docs/race.png too")
    chosen = parser.parse_args()
    check = chosen.check
    if chosen.picture:
        for folder, (name, length) in PICTURES.items():
            out = HOME.parent / "docs" / name
            page.write_picture(
                out, stored.read(HOME / "race" / folder).rows, f"AlexNet-s on CIFAR-10, {length}: error over time"
            )
            out.with_suffix(".svg").unlink()
    stale = [path for path in DOCUMENTS if refreshed(path.read_text()) != path.read_text()]
    for path in stale:
        if check:
            print(f"{path} does not show what the rows say: run python results/show.py")
        else:
            path.write_text(refreshed(path.read_text()))
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
