import json

import pytest

from regrow.errors import StateError
from regrow.report.reading import read_run


def test_a_finished_run(finished, files):
    lines = (finished / "metrics.jsonl").read_text().splitlines()
    assert len(files.metrics) == len(lines)
    assert (files.step, files.steps_per_epoch, files.total_steps) == (24, 6, 24)
    assert files.result == json.loads((finished / "result.json").read_text())
    assert [record.update for record in files.journal] == [0, 1, 2]
    assert {row["kind"] for row in files.metrics} == {"train", "validation", "test"}
    assert len(files.rows("test")) == 1
    assert files.journals_all


def test_a_run_in_progress_has_no_result_and_may_end_in_half_a_line(editable):
    (editable / "result.json").unlink()
    for name in ("metrics.jsonl", "topology.jsonl"):
        path = editable / name
        path.write_text(path.read_text()[:-20])
    files = read_run(editable)
    assert files.result is None
    assert not files.rows("test")
    assert len(files.journal) == 2


def test_max_steps_ends_a_run(convolutional):
    assert read_run(convolutional).total_steps == 8


def test_folders_that_are_no_runs(tmp_path, editable):
    with pytest.raises(StateError, match="is not a folder"):
        read_run(tmp_path / "absent")
    with pytest.raises(StateError, match="not the folder of a run"):
        read_run(tmp_path)
    (editable / "result.json").write_text("{")
    with pytest.raises(StateError, match=r"result\.json is damaged"):
        read_run(editable)


def test_a_folder_with_nothing_logged(editable):
    for name in ("metrics.jsonl", "topology.jsonl", "speed.jsonl", "result.json", "environment.json"):
        (editable / name).unlink()
    files = read_run(editable)
    assert (files.step, files.steps_per_epoch, files.total_steps) == (0, None, None)
    assert files.environment == {}
