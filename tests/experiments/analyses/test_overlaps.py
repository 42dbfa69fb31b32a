"""Overlaps of first masks: measured, and kept."""

from dataclasses import replace

import pytest

from regrow.config import Config, Data, Sparse
from regrow.errors import StateError
from regrow.experiments.analyses import overlaps as module
from regrow.experiments.analyses.overlaps import first_overlap, overlaps

SAMPLE = Config(epochs=3, data=Data("mnist-sample", batch=100), sparse=Sparse(density=0.05), threads=1)
FULL = replace(SAMPLE, sparse=replace(SAMPLE.sparse, window_tolerance=0.0))
SHORT = replace(SAMPLE, sparse=replace(SAMPLE.sparse, window_tolerance=0.2))


def test_first_masks_overlap_wholly_with_the_same_window_and_almost_with_a_shorter_one():
    assert first_overlap(FULL, FULL) == (1.0, 1.0)
    masks, grown = first_overlap(FULL, SHORT)
    assert 0.5 < grown < masks < 1.0


def test_what_is_known_is_not_measured_again(tmp_path, monkeypatch):
    measured = []
    monkeypatch.setattr(module, "first_overlap", lambda one, other: measured.append(one.seed) or (0.5, 0.25))
    path = tmp_path / "overlaps.csv"
    assert overlaps(FULL, SHORT, [0, 3], path, measures=False) == {}
    assert overlaps(FULL, SHORT, [0], path, measures=True) == {0: (0.5, 0.25)}
    assert overlaps(FULL, SHORT, [0, 3], path, measures=True) == {0: (0.5, 0.25), 3: (0.5, 0.25)}
    assert overlaps(replace(FULL, epochs=4), replace(SHORT, epochs=4), [0], path, measures=False) == {}
    assert measured == [0, 3]


def test_overlaps_from_before_grown_weights_were_counted_have_none(tmp_path):
    path = tmp_path / "overlaps.csv"
    pair = FULL.identity(), SHORT.identity()
    path.write_text(",".join(module.COLUMNS) + f"\nlenet300,mnist,20,0,0.9,,{pair[0]},{pair[1]}\n")
    assert overlaps(FULL, SHORT, [0], path, measures=False) == {0: (0.9, None)}


def test_another_table_is_refused(tmp_path):
    (tmp_path / "overlaps.csv").write_text("a,b\n1,2\n")
    with pytest.raises(StateError, match="not a table of overlaps"):
        overlaps(FULL, SHORT, [0], tmp_path / "overlaps.csv", measures=False)
