"""Tables: the right rows in the right lines, the same numbers in every form."""

import csv
import io
from dataclasses import replace

import pytest
from rich.console import Console

from regrow.errors import StateError
from regrow.experiments.rows import row_of
from regrow.experiments.tables import HEADER, as_csv, as_latex, as_markdown, as_rich, table_from_rows
from tests.experiments.fakes import cell, finish

DENSE, THIN, RANDOM = cell(label="dense", density=1.0), cell(), cell(label="random growth", growth="random")


def rows(tmp_path, where, errors, execution="masked"):
    config = replace(where.config, sparse=replace(where.config.sparse, execution=execution))
    found = []
    for job, error in zip(replace(where, config=config).jobs(range(len(errors))), errors, strict=True):
        finish(job, tmp_path, error)
        found.append(row_of(job.config, tmp_path / job.key))
    return found


def test_lines_are_cells_with_runs_in_the_order_of_the_cells(tmp_path):
    found = rows(tmp_path, THIN, [2.0, 2.2]) + rows(tmp_path, DENSE, [1.0, 1.2, 1.4])
    table = table_from_rows([DENSE, THIN, RANDOM], found)
    assert [line.cell for line in table] == [DENSE, THIN]
    assert [line.summary.n for line in table] == [3, 2]
    assert table[1].summary.mean == pytest.approx(2.1)
    assert table[1].difference == pytest.approx(0.1 / (0.1**2 + 0.05**2) ** 0.5)


def test_options_tell_ablations_apart(tmp_path):
    table = table_from_rows([THIN, RANDOM], rows(tmp_path, THIN, [2.0]) + rows(tmp_path, RANDOM, [3.0]))
    assert [(line.cell.label, line.summary.mean) for line in table] == [
        ("sparse momentum", 2.0),
        ("random growth", 3.0),
    ]


def test_executions_are_never_mixed(tmp_path):
    found = rows(tmp_path, THIN, [2.0]) + rows(tmp_path, THIN, [3.0], "sparse")
    table = table_from_rows([THIN], found)
    assert [(line.computed, line.summary.mean) for line in table] == [
        ("masked, window 0.1", 2.0),
        ("sparse, window 0.1", 3.0),
    ]


def test_only_settings_that_grow_by_momentum_have_a_window(tmp_path):
    found = [row for where in (DENSE, THIN, RANDOM) for row in rows(tmp_path, where, [2.0])]
    table = table_from_rows([DENSE, THIN, RANDOM], found)
    assert [line.computed for line in table] == ["dense", "masked, window 0.1", "masked"]


def test_a_seed_that_counts_twice_is_refused(tmp_path):
    (found,) = rows(tmp_path, THIN, [2.0])
    with pytest.raises(StateError, match="two rows for seed 0"):
        table_from_rows([THIN], [found, found])


def test_collapsed_runs_are_counted_not_averaged(tmp_path):
    found = rows(tmp_path, THIN, [2.0, 88.65, 2.2, float("nan")]) + rows(tmp_path, DENSE, [90.2])
    dense, thin = table_from_rows([DENSE, THIN], found)
    assert (thin.summary.n, thin.collapsed, thin.summary.mean) == (2, 2, pytest.approx(2.1))
    assert [row["test_error"] for row in thin.runs(found)] == [2.0, 2.2]
    assert thin.texts()[4:7] == ("2", "2", "2.100")
    assert (dense.summary.n, dense.collapsed, dense.difference) == (0, 1, None)
    assert dense.texts()[4:7] == ("0", "1", "")
    console = Console(width=80, record=True)
    console.print(as_rich([dense, thin], "title"))
    assert "2, 2 collapsed" in console.export_text()


@pytest.fixture
def table(tmp_path):
    return table_from_rows([DENSE, THIN], rows(tmp_path, DENSE, [1.0]) + rows(tmp_path, THIN, [2.0, 2.2]))


def test_csv(table):
    header, dense, thin = csv.reader(io.StringIO(as_csv(table)))
    assert tuple(header) == HEADER
    assert dense[:4] == ["lenet300", "dense", "100", "13310"]
    assert dense[4:] == ["1", "0", "1.000", "", "", "2.000", "0.050", "", "1 epoch", "dense"]
    assert thin[4:12] == ["2", "0", "2.100", "0.100", "1.904 .. 2.296", "2.000", "0.050", "+0.9"]


class TestNonZeros:
    def line(self, *counts):
        own = [{**row, "nonzeros": a, "dense_weights": b} for row, (a, b) in zip(self.rows, counts, strict=True)]
        return table_from_rows([THIN], own)[0].nonzeros

    @pytest.fixture(autouse=True)
    def two_rows(self, tmp_path):
        self.rows = rows(tmp_path, THIN, [2.0, 2.2])

    def test_they_are_those_of_the_whole_network(self):
        assert self.line(("2652", "1000"), ("2652", "1000")) == "3652"

    def test_a_range_where_runs_differ(self):
        assert self.line(("100", "0"), ("98", "0")) == "98 .. 100"

    def test_runs_that_diverged_have_none(self):
        assert self.line(("100", "0"), ("", "0")) == "100"

    def test_nothing_where_dense_layers_were_not_counted(self):
        assert self.line(("100", ""), ("100", "0")) == ""


def test_markdown_and_latex_have_the_same_cells(table):
    lines = as_markdown(table).splitlines()
    assert lines[0].count("|") == lines[3].count("|") == len(HEADER) + 1
    latex = as_latex(table)
    assert r"weights \%" in latex
    assert r"2.100 & 0.100 & 1.904 .. 2.296" in latex
    assert latex.count(r"\\") == 3


@pytest.mark.parametrize("models", [("lenet300",), ("lenet300", "vgg16-like")])
def test_the_terminal_table_fits_80_columns(table, models):
    label = "sparse-momentum (lenet300)" if len(models) == 1 else "sparse momentum"
    lines = [replace(line, cell=replace(line.cell, model=model, label=label)) for model in models for line in table]
    console = Console(file=io.StringIO(), width=80)
    console.print(as_rich(lines, "figure 1"))
    text = console.file.getvalue()
    assert "2.100 ± 0.100" in text
    assert "…" not in text
    body = [line for line in text.splitlines() if "±" in line and "SE" not in line]
    assert len(body) == 2 * len(models), "a line of the table wraps"
