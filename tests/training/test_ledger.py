"""Files of rows: marks, damage that is named, files that vanish while a run writes them."""

import json
import os
import warnings

import pytest

from regrow.errors import CheckpointWarning
from regrow.training.forms import is_metrics_row
from regrow.training.ledger import Ledger, Mark, last_row, line, read_rows

ROWS = [{"kind": "train", "step": step, "epoch": step / 10, "loss": 0.5, "accuracy": 0.25} for step in range(1, 7)]


@pytest.fixture
def ledger(tmp_path):
    rows = []
    kept = Ledger(tmp_path / "metrics.jsonl", lambda: rows)
    kept.restart()
    for row in ROWS:
        rows.append(row)
        kept.add(row)
    return kept


def silently(function, *arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return function(*arguments)


def test_the_mark_of_a_prefix_finds_its_rows_in_a_longer_file(ledger):
    mark = ledger.mark()
    ledger.path.write_bytes(ledger.path.read_bytes() + b'{"kind": "train", "step"')
    assert silently(read_rows, ledger.path, is_metrics_row, mark) == ROWS
    assert Mark.from_dict(json.loads(json.dumps(mark.as_dict()))) == mark
    assert mark.rows == 6


@pytest.mark.parametrize("data", [None, {}, [], {"rows": 1}, {"rows": "1", "bytes": 2, "sha256": 3}, 7])
def test_a_mark_of_another_form_is_none(data):
    assert Mark.from_dict(data) is None


def test_rows_lost_to_damage_are_named_and_the_others_kept(ledger):
    lines = ledger.path.read_bytes().splitlines(keepends=True)
    ledger.path.write_bytes(b"".join([lines[0], b"\xff\xfe{\n", lines[2], b"[[[[\n", *lines[4:]]))
    for mark in (ledger.mark(), None):
        with pytest.warns(
            CheckpointWarning, match=r"metrics\.jsonl is damaged: 2 of 6 rows are lost \(unreadable: lines 2, 4\)"
        ):
            rows = read_rows(ledger.path, is_metrics_row, mark)
        assert [row["step"] for row in rows] == [1, 3, 5, 6]


@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(b""), os.remove], ids=["emptied", "deleted"])
def test_a_file_without_its_rows_is_named(ledger, damage):
    damage(ledger.path)
    with pytest.warns(CheckpointWarning, match="6 of 6 rows are lost"):
        assert read_rows(ledger.path, is_metrics_row, ledger.mark()) == []


def test_a_changed_number_is_noticed(ledger):
    ledger.path.write_bytes(ledger.path.read_bytes().replace(b'"step": 4', b'"step": 3'))
    with pytest.warns(CheckpointWarning, match="some of its 6 rows are not those that the run wrote"):
        assert len(read_rows(ledger.path, is_metrics_row, ledger.mark())) == 6


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "null", "[]", '{"step": 1}', '{"kind": "train", "step": 1e400}', "1" * 5000, '{"a": NaN}']
)
def test_lines_that_are_no_rows(ledger, text):
    ledger.path.write_text(text + "\n" + line(ROWS[0]))
    with pytest.warns(CheckpointWarning, match="line 1"):
        assert read_rows(ledger.path, is_metrics_row) == ROWS[:1]


@pytest.mark.parametrize("damage", [os.remove, lambda path: path.write_bytes(b"")], ids=["deleted", "emptied"])
def test_a_file_that_vanishes_while_the_run_goes_on_is_written_anew(ledger, damage):
    before = ledger.path.read_bytes()
    damage(ledger.path)
    with pytest.warns(CheckpointWarning, match="written anew"):
        ledger.sync()
    assert ledger.path.read_bytes() == before
    os.remove(ledger.path)
    ledger._rows().append(ROWS[0])
    with pytest.warns(CheckpointWarning, match="written anew"):
        ledger.add(ROWS[0])
    assert read_rows(ledger.path) == [*ROWS, ROWS[0]]
    assert silently(read_rows, ledger.path, None, ledger.mark()) == [*ROWS, ROWS[0]]


def test_the_last_row_of_a_file_that_is_being_written(ledger, tmp_path):
    ledger.path.write_bytes(ledger.path.read_bytes() + b'{"kind": "tr\xff')
    assert silently(last_row, ledger.path, is_metrics_row) == ROWS[-1]
    assert last_row(tmp_path / "none", is_metrics_row) is None
