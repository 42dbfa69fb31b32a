"""Rows and results from anybody."""

import json

import pytest

from regrow.errors import StateError
from regrow.training.forms import is_ending, is_metrics_row, is_speed_row, read_json, sealed

ROW = {"kind": "train", "step": 1, "epoch": 0.5, "loss": 0.5, "accuracy": 0.5, "top5": None, "updates": 2}
ENDING = {"identity": "abc", "steps": 10, "test_error": 1.5, "test_top5": None, "speedup": {"a": None, "b": 2.0}}
ODD = [float("nan"), float("inf"), 10**400, [], {}, "x", True, -1 << 70]


def test_what_runs_write_is_accepted():
    assert is_metrics_row(ROW)
    assert is_speed_row({"step": 1, "seconds": 0.5, "steps": 3})
    assert is_ending(ENDING)
    assert is_ending({"identity": "abc", "steps": 3, "code": "c", "message": "diverged", "patience": 2})


@pytest.mark.parametrize("value", [*ODD, None], ids=repr)
def test_what_is_no_number_is_refused(value):
    for key in ("step", "epoch", "loss", "accuracy"):
        assert not is_metrics_row({**ROW, key: value}) or (key != "step" and value == -1 << 70)
    assert not is_speed_row({"step": value})
    assert not is_ending({**ENDING, "steps": value})
    assert not is_ending({**ENDING, "patience": value})
    assert not is_ending({**ENDING, "identity": value}) or isinstance(value, str)
    if value is not None and value != -1 << 70:
        assert not is_ending({**ENDING, "test_error": value})
        assert not is_ending({**ENDING, "speedup": {"a": value}})


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000, '{"identity": 1, "steps": 2}', "\x00"])
def test_a_damaged_result_is_named(text, tmp_path):
    path = tmp_path / "result.json"
    path.write_text(text)
    with pytest.raises(StateError, match=r"result\.json is damaged .*repeat regrow train"):
        read_json(path, is_ending)
    path.write_text(json.dumps(ENDING))
    assert read_json(path, is_ending) == ENDING
    assert read_json(tmp_path / "none", is_ending) is None


def test_a_changed_digit_of_a_result_is_named(tmp_path):
    path = tmp_path / "result.json"
    path.write_bytes(sealed(ENDING))
    assert {key: value for key, value in read_json(path, is_ending).items() if key in ENDING} == ENDING
    path.write_bytes(sealed(ENDING).replace(b"1.5", b"1.4"))
    with pytest.raises(StateError, match=r"result\.json is damaged .*repeat regrow train"):
        read_json(path, is_ending)
    path.write_bytes(sealed(ENDING).replace(b"1.5", b"1.4").replace(b"sha256", b"sha156"))
    with pytest.raises(StateError, match=r"result\.json is damaged"):
        read_json(path, is_ending)
    path.write_text(json.dumps(ENDING))  # of a release without a hash
    assert read_json(path, is_ending) == ENDING
