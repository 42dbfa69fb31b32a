"""What a run says about its making."""

import json
import warnings

import pytest

from regrow.errors import CheckpointWarning
from regrow.training.provenance import code_of, joined, warn_of_changes


def test_code_of_an_older_run(tmp_path):
    path = tmp_path / "environment.json"
    assert code_of(path) == "unknown"
    path.write_text(json.dumps({"torch": "2"}))
    assert code_of(path) == "unknown"
    path.write_text(json.dumps({"code": "abc"}))
    assert code_of(path) == "abc"


def test_parts_of_the_same_code_are_one():
    assert joined("a", "a") == "a"
    assert joined(joined("a", "b"), "a") == "a+b+a"


def test_changes_are_named_and_nothing_else():
    with pytest.warns(CheckpointWarning, match="threads = 2, saved with 1"):
        warn_of_changes({"threads": 1, "world": 1}, {"threads": 2, "world": 1})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_changes({"threads": 1, "more": 3}, {"threads": 1, "kernels": "of which older checkpoints say nothing"})
