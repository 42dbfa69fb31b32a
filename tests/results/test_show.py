"""The documents' tables are what the raw rows say, and the rows are whole."""

import csv
import importlib.util
import json
import math
import shutil
import tomllib
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

import pytest

from regrow.config import override
from regrow.experiments.catalogue import EXPERIMENTS, find
from regrow.experiments.grid import parse_seeds
from regrow.experiments.reproduce import collect
from regrow.experiments.rows import COLUMNS, of_setting, read_runs
from regrow.presets import PRESETS

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
    runs = {(row["identity"], row["seed"], row["execution"]) for row in rows}
    own = ((cell.config, row) for cell in find(name).cells() for row in of_setting(cell.config, rows))
    known = {(_as_run(config, row).identity(), row["seed"], row["execution"]) for config, row in own}
    assert runs <= known, "rows of other configurations than the experiment's"
    assert all(math.isnan(error := float(row["test_error"])) or 0 < error < 100 for row in rows)
    assert all(float(row["seconds"]) > 0 for row in rows)


def _as_run(config, row):
    return replace(config, seed=int(row["seed"]), sparse=replace(config.sparse, execution=row["execution"]))


def test_the_table_of_figure_1_recomputed_by_hand():
    errors, weights = defaultdict(list), defaultdict(set)
    with open(RESULTS / "mnist-compression" / "runs.csv", newline="") as file:
        for row in csv.DictReader(file):
            if row["model"] == "lenet300" and row["method"] in ("dense", "sparse-momentum"):
                density = f"{100 * float(row['density']):g}"
                errors[density].append(float(row["test_error"]))
                weights[density].add(row["nonzeros"])
    text = (
        (RESULTS.parent / "docs" / "results.md")
        .read_text()
        .split("<!-- results: mnist-compression lenet300:curves -->")[1]
    )
    rows = text.split("<!-- end -->")[0].splitlines()
    lines = [line.split(" | ")[1:5] for line in rows if line.startswith(("| dense |", "| sparse momentum |"))]
    means = {density: f"{mean(of):.3f} ± {stdev(of) / math.sqrt(len(of)):.3f}" for density, of in errors.items()}
    assert {density: (n, error) for density, _, n, error in lines} == {
        d: (str(len(errors[d])), means[d]) for d in errors
    }
    assert {density: {nonzeros} for density, nonzeros, _, _ in lines} == weights
    assert len(lines) == 9


@pytest.mark.parametrize("name", STORED)
def test_stored_tables_and_analyses_follow_from_the_rows(tmp_path, name):
    results = shutil.copytree(RESULTS / name, tmp_path / name)
    experiment = find(name)
    collect(experiment, [], [], tmp_path / "no runs here", results, experiment.cells())
    texts = {path.name: path.read_text() for path in results.iterdir() if path.suffix in (".md", ".csv", ".tex")}
    assert {"table.md", "table.csv", "table.tex"} <= texts.keys()
    assert texts == {name: (RESULTS / experiment.name / name).read_text() for name in texts}


def test_collapsed_runs_are_counted_apart():
    lines = show.table("stability", "*").splitlines()
    collapsed = {line.split(" | ")[0]: line.split(" | ")[1:3] for line in lines}
    assert collapsed["| none: the paper's settings"] == ["10", "4"]
    assert collapsed["| learning rate 0.05"] == ["10", "0"]


LETTER = {"option.grown_momentum": "keep", "option.warmup": "0", "window_tolerance": "0.001"}


def _changed(folder):
    """Name, base configuration as on the command line, and the options of each single change."""
    for name, change in tomllib.loads((RESULTS / folder / f"{folder}.toml").read_text()).items():
        words = change["command"].split()
        options = dict(zip((word.removeprefix("--") for word in words[::2]), words[1::2], strict=True))
        yield name, (LETTER if change.get("letter", True) else {}) | options


def _unpatched(row):
    """A row as the same command without `patched.py` would have it."""
    return row | {"other": "" if "patch" in row["other"] else row["other"]}


@pytest.mark.parametrize(
    ("folder", "preset", "common"),
    [
        ("probes", "mnist-lenet300", {"execution": "sparse"}),
        (
            "stability",
            "mnist-lenet5",
            {"execution": "sparse", "density": "0.05", "optimizer.lr": "0.1", "max_steps": "2700"},
        ),
    ],
)
def test_rows_of_single_changes_are_those_of_their_commands(folder, preset, common):
    for name, options in _changed(folder):
        rows = [_unpatched(row) for row in read_runs(RESULTS / folder / f"{name}.csv")]
        seeds = options.pop("seeds")
        config = override(PRESETS[preset], {**common, **options})
        assert sorted(int(row["seed"]) for row in rows) == parse_seeds(seeds), name
        assert of_setting(config, rows) == rows, name
        assert all(row["execution"] == "sparse" for row in rows), name


def test_rows_of_patched_runs_name_their_patch():
    described = tomllib.loads((RESULTS / "probes" / "probes.toml").read_text())
    scripts = {name: probe["script"].split() for name, probe in described.items() if "script" in probe}
    assert scripts
    for name, (*_, patch, option, seeds) in scripts.items():
        rows = read_runs(RESULTS / "probes" / f"{name}.csv")
        assert (patch, option) == (name, "--seeds")
        assert sorted(int(row["seed"]) for row in rows) == parse_seeds(seeds)
        assert all(json.loads(row["other"]) == {"patch": name} for row in rows)
