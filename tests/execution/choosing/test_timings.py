"""Timings in a file: shared, whole, per machine; damage is noticed and repaired."""

import json

import pytest
import torch

from regrow import native
from regrow.execution.choosing.timings import Timing, Timings, bucket, machine


def keep(path, key="a", ms=1.5):
    timings = Timings(path)
    timings.put(key, Timing(ms, 0.05))
    timings.save()


def test_what_is_saved_is_found(tmp_path):
    path = tmp_path / "deep" / "timings.json"
    keep(path)
    assert Timings(path).get("a") == Timing(1.5, 0.05)
    assert Timings(path).get("b") is None
    assert [p.name for p in path.parent.iterdir()] == ["timings.json"]


def test_processes_add_to_each_other(tmp_path):
    path = tmp_path / "timings.json"
    first, second = Timings(path), Timings(path)
    for timings, key in ((first, "a"), (second, "b")):
        timings.put(key, Timing(1.0, 1.0))
        timings.save()
    assert Timings(path).get("a") == Timings(path).get("b") == Timing(1.0, 1.0)


def test_timings_belong_to_a_machine_and_its_threads(tmp_path):
    path = tmp_path / "timings.json"
    keep(path)
    torch.set_num_threads(2)
    assert Timings(path).get("a") is None
    keep(path, ms=0.5)
    torch.set_num_threads(1)
    assert Timings(path).get("a") == Timing(1.5, 0.05)


def test_machine_names_all_that_decides(monkeypatch):
    for part in ("1 threads", torch.__version__):
        assert part in machine()
    monkeypatch.setattr(native, "library_path", lambda: None)
    assert "no kernels" in machine()


@pytest.mark.parametrize(
    "content",
    [
        b"{", b"[]", b"\xff", b'{"format": 1}', b'{"format": 1, "machines": 3}', b'{"format": 1, "machines": {"m": {"a": 3}}}',
        b'{"format": 1, "machines": {"m": {"a": [-1, 1]}}}', b'{"format": 1, "machines": {"m": {"a": [NaN, 1]}}}',
    ],
)  # fmt: skip
def test_a_damaged_file_is_measured_anew_with_a_warning(tmp_path, content):
    path = tmp_path / "timings.json"
    path.write_bytes(content)
    with pytest.warns(UserWarning, match="damaged"):
        timings = Timings(path)
    assert timings.get("a") is None
    timings.put("a", Timing(2.0, 1.0))
    with pytest.warns(UserWarning, match="damaged"):
        timings.save()
    assert Timings(path).get("a") == Timing(2.0, 1.0)


def test_another_format_is_ignored_in_silence(tmp_path):
    path = tmp_path / "timings.json"
    path.write_text(json.dumps({"format": 99}))
    assert Timings(path).get("a") is None


def test_where_nothing_can_be_written_a_warning_says_so(tmp_path):
    (tmp_path / "file").write_text("in the way")
    timings = Timings(tmp_path / "file" / "timings.json")
    timings.put("a", Timing(1.0, 1.0))
    with pytest.warns(UserWarning, match="measures again"):
        timings.save()
    assert timings.get("a") is not None


def test_buckets_are_a_fifth_wide():
    assert bucket(0.05) == bucket(0.054)
    assert bucket(0.05) != bucket(0.065)
    assert bucket(0.0001) != bucket(0.0002)
