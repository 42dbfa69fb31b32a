"""The documents' tables are what the raw rows say, and the rows are whole."""

import importlib.util
import math
from dataclasses import replace
from pathlib import Path

import pytest

from regrow.experiments.catalogue import EXPERIMENTS, find
from regrow.experiments.rows import COLUMNS, read_runs, same_setting
from regrow.experiments.statistics import summarise

RESULTS = Path(__file__).parents[2] / "results"
specification = importlib.util.spec_from_file_location("show", RESULTS / "show.py")
show = importlib.util.module_from_spec(specification)
specification.loader.exec_module(show)
STORED = sorted(path.parent.name for path in RESULTS.glob("*/runs.csv"))


@pytest.mark.parametrize("document", show.DOCUMENTS, ids=lambda path: path.name)
def test_tables_are_what_the_rows_say(document):
    text = document.read_text()
    assert "<!-- results:" in text
    assert show.refreshed(text) == text


@pytest.mark.parametrize("name", STORED)
def test_rows_are_whole_and_belong_to_the_experiment(name):
    assert name in EXPERIMENTS
    rows = read_runs(RESULTS / name / "runs.csv")
    assert rows
    assert tuple(rows[0]) == COLUMNS
    cells = find(name).cells()
    for row in rows:
        own = [cell.config for cell in cells if same_setting(cell.config, row)]
        assert row["identity"] in {_as_run(config, row).identity() for config in own}, f"would be run again: {row}"
        assert math.isnan(error := float(row["test_error"])) or 0 < error < 100
        assert float(row["seconds"]) > 0


def _as_run(config, row):
    return replace(config, seed=int(row["seed"]), sparse=replace(config.sparse, execution=row["execution"]))


def test_a_mean_recomputed_by_hand():
    rows = read_runs(RESULTS / "mnist-compression" / "runs.csv")
    errors = [
        float(row["test_error"])
        for row in rows
        if (row["model"], row["method"], float(row["density"])) == ("lenet300", "sparse-momentum", 0.05)
    ]
    ours = summarise(errors)
    assert f"| lenet300 | sparse momentum | 5 | {ours.n} | {ours.mean:.3f} ± {ours.se:.3f} |" in show.table(
        "mnist-compression", "lenet300"
    )


def test_collapsed_runs_are_counted_apart():
    lines = show.table("stability", "*").splitlines()
    collapsed = {line.split(" | ")[0]: line.split(" | ")[1:3] for line in lines}
    assert collapsed["| none: the paper's settings"] == ["10", "4"]
    assert collapsed["| learning rate 0.05"] == ["10", "0"]
