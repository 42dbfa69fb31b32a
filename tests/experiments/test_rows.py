"""Raw rows: written once, read back, told apart."""

import json
import multiprocessing
from dataclasses import replace

import pytest

from regrow.config import Sparse
from regrow.errors import StateError
from regrow.experiments.grid import Job
from regrow.experiments.rows import COLUMNS, add_runs, ending_of, learned, of_setting, read_runs, row_of
from tests.experiments.fakes import BASE, finish


def row(tmp_path, config=BASE, **extra):
    job = Job(config)
    finish(job, tmp_path, **extra)
    return row_of(config, tmp_path / job.key)


def test_a_row_has_all_columns_and_what_matters(tmp_path):
    found = row(tmp_path, error=1.53, speedup={"both": 3.01})
    assert set(found) == set(COLUMNS)
    assert found["test_error"] == 1.53
    assert found["seconds"] == 1.5
    assert found["processor_seconds"] == 1.25
    assert (found["model"], found["method"], found["density"], found["seed"]) == (
        "lenet300",
        "sparse-momentum",
        "0.05",
        0,
    )
    assert (found["speedup_both"], found["speedup_weights"]) == (3.01, None)


def test_rows_are_added_replaced_and_sorted(tmp_path):
    path = tmp_path / "runs.csv"
    second, first = row(tmp_path, replace(BASE, seed=1), error=2.0), row(tmp_path, error=1.0)
    add_runs(path, [second])
    assert [r["seed"] for r in add_runs(path, [first])] == ["0", "1"]
    again = add_runs(path, [{**second, "test_error": 3.0}])
    assert [r["test_error"] for r in again] == ["1.0", "3.0"]
    assert read_runs(path) == again


def test_measured_speedups_outlive_the_same_run_without_them(tmp_path):
    job = Job(BASE)
    finish(job, tmp_path, speedup={"both": 3.0})
    measured = row_of(job.config, tmp_path / job.key)
    plain = {key: None if key.startswith("speedup") else value for key, value in measured.items()}
    add_runs(tmp_path / "runs.csv", [measured])
    (row,) = add_runs(tmp_path / "runs.csv", [{**plain, "test_error": 1.5}])
    assert (row["speedup_both"], row["speedup_weights"], row["test_error"]) == ("3.0", "", "1.5")


def test_writing_twice_gives_the_same_bytes(tmp_path):
    path = tmp_path / "runs.csv"
    add_runs(path, [row(tmp_path)])
    before = path.read_bytes()
    add_runs(path, [row(tmp_path)])
    assert path.read_bytes() == before


def test_settings_are_told_apart_by_all_that_decides_them(tmp_path):
    path = tmp_path / "runs.csv"
    (read,) = add_runs(path, [row(tmp_path)])
    assert of_setting(BASE, [read])
    assert of_setting(replace(BASE, seed=7, sparse=replace(BASE.sparse, execution="sparse")), [read])
    for other in (
        replace(BASE, epochs=2),
        replace(BASE, model="lenet5"),
        replace(BASE, sparse=replace(BASE.sparse, distribution="erk")),
        replace(BASE, sparse=replace(BASE.sparse, density=0.1)),
        replace(BASE, sparse=Sparse(density=0.05, options={"growth": "random"})),
        replace(BASE, optimizer=replace(BASE.optimizer, momentum=0.8)),
        replace(BASE, label_smoothing=0.1),
        replace(BASE, model_options={"initial": "xavier"}),
        replace(BASE, optimizer=replace(BASE.optimizer, nesterov=False)),
        replace(BASE, schedule=replace(BASE.schedule, kind="cosine")),
        replace(BASE, sparse=replace(BASE.sparse, update_every=7)),
    ):
        assert not of_setting(other, [read])


@pytest.mark.parametrize(
    ("data", "error", "worth"),
    [
        ("mnist", 88.65, False),
        ("mnist-sample", 87.7, False),
        ("mnist", 79.5, True),
        ("imagenet", 95.4, True),
        ("imagenet", 99.9, False),
    ],
)
def test_naming_one_class_is_not_learning(data, error, worth):
    assert learned({"data": data, "test_error": str(error)}) == worth
    assert not learned({"data": data, "test_error": "nan"})


def test_numbers_may_be_written_otherwise(tmp_path):
    (read,) = add_runs(tmp_path / "runs.csv", [row(tmp_path)])
    assert of_setting(BASE, [{**read, "density": "5e-2", "epochs": "1.0"}])


def test_columns_that_somebody_added_stay(tmp_path):
    path = tmp_path / "runs.csv"
    add_runs(path, [row(tmp_path)])
    header, line = path.read_text().splitlines()
    path.write_text(f"{header},note\n{line},looked at\n")
    rows = add_runs(path, [row(tmp_path, error=1.25), row(tmp_path, replace(BASE, seed=1))])
    assert [(r["seed"], r["note"]) for r in rows] == [("0", "looked at"), ("1", "")]
    assert rows[0]["test_error"] == "1.25"


def test_a_table_without_identities_is_refused(tmp_path):
    path = tmp_path / "runs.csv"
    add_runs(path, [row(tmp_path)])
    path.write_text(path.read_text().replace("identity", "hash"))
    with pytest.raises(StateError, match="no column identity"):
        add_runs(path, [row(tmp_path)])


def test_the_gpu_is_what_computed(tmp_path):
    job = Job(BASE)
    finish(job, tmp_path)
    path = tmp_path / job.key / "environment.json"
    path.write_text(path.read_text().replace("{", '{"gpu": "a GPU", ', 1))
    assert row_of(job.config, tmp_path / job.key)["processor"] == "a GPU"


def test_another_table_is_refused(tmp_path):
    (tmp_path / "runs.csv").write_text("a,b\n1,2\n")
    with pytest.raises(StateError, match="not a table of runs"):
        read_runs(tmp_path / "runs.csv")


def _add_many(path, rows):
    for one in rows:
        add_runs(path, [one])


def test_two_processes_that_add_to_one_file_lose_nothing(tmp_path):
    path, plain = tmp_path / "runs.csv", row(tmp_path)
    halves = [[{**plain, "seed": seed, "identity": f"run {seed}"} for seed in range(first, 40, 2)] for first in (0, 1)]
    processes = [multiprocessing.get_context("spawn").Process(target=_add_many, args=(path, half)) for half in halves]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert [int(r["seed"]) for r in read_runs(path)] == list(range(40))


@pytest.mark.parametrize(
    ("spent", "asked", "ended"), [(0, 0, True), (2, 2, True), (2, 1, True), (2, 0, False), (2, 3, False)]
)
def test_a_collapse_is_an_ending_unless_more_patience_is_asked(tmp_path, spent, asked, ended):
    note = {"identity": BASE.identity(), "steps": 20, "message": "collapsed", "patience": spent}
    (tmp_path / "diverged.json").write_text(json.dumps(note))
    assert (ending_of(replace(BASE, patience=asked), tmp_path) is not None) == ended
