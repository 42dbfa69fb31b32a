"""The growth window's analysis."""

from dataclasses import replace

import pytest

from regrow.config import Config, Data, Sparse
from regrow.experiments.catalogue import find
from regrow.experiments.rows import row_of
from regrow.experiments.windows import dense_share, error_pairs, first_overlap
from tests.experiments.fakes import finish

SAMPLE = Config(epochs=3, data=Data("mnist-sample", batch=100), sparse=Sparse(density=0.05), threads=1)


def test_the_window_spans_66_of_540_steps_of_all_epochs_but_the_last():
    full, windowed = find("growth-window").chosen("lenet300", None, None)
    assert dense_share(windowed.config) == pytest.approx(66 * 99 / 54_000)
    assert dense_share(full.config) == pytest.approx(0.99)


def test_errors_pair_by_seed(tmp_path):
    full, windowed = find("growth-window").chosen("lenet300", None, None)
    rows = []
    for cell, seeds, error in ((full, (0, 1), 1.5), (windowed, (1, 2), 1.6)):
        for job in cell.jobs(seeds):
            finish(job, tmp_path, error + 0.01 * job.config.seed)
            rows.append(row_of(job.config, tmp_path / job.key))
            rows.append({**rows[-1], "execution": "sparse", "test_error": 9.0})
    assert error_pairs(full, windowed, rows) == {1: (1.61, 1.51)}


def test_first_masks_overlap_wholly_with_the_same_window_and_almost_with_a_shorter_one():
    full = replace(SAMPLE, sparse=replace(SAMPLE.sparse, window_tolerance=0.0))
    short = replace(SAMPLE, sparse=replace(SAMPLE.sparse, window_tolerance=0.2))
    assert first_overlap(full, full, seed=0) == 1.0
    assert 0.9 < first_overlap(full, short, seed=0) < 1.0
