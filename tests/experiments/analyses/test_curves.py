"""Learning curves of runs: kept, tabled and drawn."""

import json

import pytest

from regrow.errors import StateError
from regrow.experiments.analyses import Material
from regrow.experiments.analyses.curves import describe
from regrow.experiments.catalogue import find
from tests.experiments.fakes import finish

EXPERIMENT = find("cifar-check")
CELLS = EXPERIMENT.chosen("alexnet-s", settings=["first steps"])


def row(kind, step, loss, accuracy):
    return {"kind": kind, "step": step, "epoch": step / 352, "loss": loss, "accuracy": accuracy, "lr": 0.1}


def leave_log(job, folder, last=1.2):
    finish(job, folder)
    rows = [
        row("train", 22, 2.2, 0.15),
        row("validation", 200, 1.9, 0.3),
        row("train", 350, last, 0.55),
        row("train", 352, 9.9, 0.0),
        row("validation", 352, 1.4, 0.45),
        row("test", 352, 1.3, 0.5),
    ]
    (folder / job.key / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))


def described(folder, results, seeds=(0,)):
    return describe(Material(EXPERIMENT, CELLS, list(seeds), [], [], folder, results))


def test_a_run_shows_where_it_began_and_ended(tmp_path):
    (job,) = CELLS[0].jobs([0])
    leave_log(job, tmp_path)
    text = described(tmp_path, tmp_path)
    assert "| alexnet-s | first steps | 10 | 0 | sparse | 352 | 2.200 -> 1.200 | 30.0 -> 45.0 | 50.0 |" in text
    assert (tmp_path / "curves.csv").read_text().count("\n") == 7
    assert "alexnet-s 10%, first steps" in (tmp_path / "curves.svg").read_text()


def test_runs_are_added_to_those_of_earlier_days_and_replace_themselves(tmp_path):
    results = tmp_path / "results"
    results.mkdir()
    first, second = CELLS[0].jobs([0, 1])
    leave_log(first, tmp_path / "monday")
    described(tmp_path / "monday", results)
    leave_log(first, tmp_path / "tuesday", last=0.9)
    leave_log(second, tmp_path / "tuesday")
    text = described(tmp_path / "tuesday", results, (0, 1))
    assert text.count("| alexnet-s |") == 2
    drawn = (results / "curves.svg").read_text()
    assert all(f"alexnet-s 10%, first steps, seed {seed}" in drawn for seed in (0, 1))
    assert "2.200 -> 0.900" in text
    assert described(tmp_path / "nothing here", results) == text, "the file alone says as much"


def test_runs_that_go_on_have_no_curve_yet(tmp_path):
    (job,) = CELLS[0].jobs([0])
    leave_log(job, tmp_path)
    (tmp_path / job.key / "result.json").unlink()
    assert described(tmp_path, tmp_path) == ""
    assert not (tmp_path / "curves.csv").exists()


def test_a_foreign_file_is_refused(tmp_path):
    (tmp_path / "curves.csv").write_text("a,b\n1,2\n")
    with pytest.raises(StateError, match="is not a table of learning curves: remove it"):
        described(tmp_path, tmp_path)
