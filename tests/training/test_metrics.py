"""Rows on disk: what a resumed run keeps, and files cut off by a crash."""

import csv
import json

from regrow.topology.journal import Record
from regrow.training.ledger import read_rows
from regrow.training.metrics import COLUMNS, MetricLog


def row(kind, step, **more):
    return {"kind": kind, "step": step, "epoch": step / 10, "loss": 0.5, "accuracy": 0.25, "top5": None, **more}


def record(step):
    return Record(step // 10, step, 0.2, 10, 0.5, ())


def filled(folder):
    log = MetricLog(folder)
    log.restart()
    for step in (5, 10, 15, 20):
        log.add(**row("train", step))
        log.add_speed(step=step, seconds=1.0)
        if step % 10 == 0:
            log.add(**row("validation", step))
            log.journal = [*log.journal, record(step)]
            log.add_update()
    return log


def test_rows_are_in_both_files(tmp_path):
    filled(tmp_path)
    rows = read_rows(tmp_path / "metrics.jsonl")
    table = list(csv.DictReader((tmp_path / "metrics.csv").read_text().splitlines()))
    assert tuple(table[0]) == COLUMNS
    assert [(r["kind"], r["step"]) for r in rows] == [(r["kind"], int(r["step"])) for r in table]
    assert len(rows) == 6
    assert table[0]["top5"] == ""


def test_restart_keeps_rows_up_to_the_step_and_repeats_its_evaluation(tmp_path):
    filled(tmp_path)
    log = MetricLog(tmp_path)
    assert log.recover(10, {}) == [record(10), record(20)]
    log.restart([record(7)])
    assert [(r["kind"], r["step"]) for r in log.rows] == [("train", 5), ("train", 10)]
    assert read_rows(tmp_path / "metrics.jsonl") == log.rows
    assert read_rows(tmp_path / "topology.jsonl") == [json.loads(json.dumps(record(7).as_dict()))]
    assert [r["step"] for r in read_rows(tmp_path / "speed.jsonl")] == [5, 10]
    assert len(list(csv.DictReader((tmp_path / "metrics.csv").read_text().splitlines()))) == 2


def test_a_line_cut_off_by_a_crash_is_left_out(tmp_path):
    filled(tmp_path)
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-7])
    assert len(read_rows(path)) == 5
    log = MetricLog(tmp_path)
    log.recover(20, {})
    log.restart()
    assert read_rows(path) == log.rows


def test_other_ranks_write_nothing(tmp_path):
    log = MetricLog(tmp_path, writes=False)
    log.restart()
    log.add(**row("train", 1))
    log.add_speed(step=1)
    assert not list(tmp_path.iterdir())
