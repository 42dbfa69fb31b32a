"""The growth window's analysis."""

import pytest

from regrow.experiments.analyses import Material, overlaps
from regrow.experiments.analyses.windows import dense_share, describe, error_pairs
from regrow.experiments.catalogue import find
from regrow.experiments.rows import row_of
from tests.experiments.fakes import finish


def arms():
    """Full momentum, and each window."""
    return find("growth-window").chosen("lenet300", None, None)


def test_windows_span_some_of_540_steps_of_all_epochs_but_the_last():
    shares = {cell.label: dense_share(cell.config) for cell in arms()}
    assert shares == {
        "full momentum": pytest.approx(0.95),
        "growth window": pytest.approx(66 * 19 / (20 * 540)),
    }


def test_errors_pair_by_seed(tmp_path):
    full, windowed = arms()[:2]
    rows = []
    for cell, seeds, error in ((full, (0, 1), 1.5), (windowed, (1, 2), 1.6)):
        for job in cell.jobs(seeds):
            finish(job, tmp_path, error + 0.01 * job.config.seed)
            rows.append(row_of(job.config, tmp_path / job.key))
            rows.append({**rows[-1], "execution": "sparse", "test_error": 9.0})
    assert error_pairs(full, windowed, rows) == {1: (1.61, 1.51)}


def test_one_arm_alone_is_no_comparison(tmp_path):
    experiment = find("growth-window")
    cells = experiment.chosen("lenet300", settings=["full momentum"])
    assert describe(Material(experiment, cells, [0], [], [], tmp_path, tmp_path)) == ""


class TestDescription:
    @pytest.fixture
    def trained(self, monkeypatch):
        """Pairs of which first masks were asked for, without training any."""
        asked = []

        def first_overlap(one, other):
            asked.append((one.seed, one.sparse.execution, other.sparse.execution))
            return 0.99 + 0.001 * one.seed, 0.9 + 0.01 * one.seed

        monkeypatch.setattr(overlaps, "first_overlap", first_overlap)
        return asked

    def material(self, tmp_path, measures, seeds=(0, 1)):
        experiment = find("growth-window")
        cells, rows = arms()[:2], []
        for job in (job for cell in cells for job in cell.jobs(seeds)):
            finish(job, tmp_path, 1.5 + 10 * job.config.seed * job.config.sparse.window_tolerance)
            rows.append(row_of(job.config, tmp_path / job.key))
        return Material(experiment, cells, list(seeds), [], rows, tmp_path, tmp_path, measures)

    def test_nothing_is_trained_for_tables_alone(self, tmp_path, trained):
        assert "| lenet300 | growth window | 2 | not measured | not measured |" in describe(
            self.material(tmp_path, measures=False)
        )
        assert trained == []

    def test_overlaps_are_measured_once(self, tmp_path, trained):
        for measures in (True, True, False):
            assert "| lenet300 | growth window | 2 | 99.000 .. 99.100 | 90.000 .. 91.000 |" in describe(
                self.material(tmp_path, measures)
            )
        assert trained == [(0, "masked", "masked"), (1, "masked", "masked")]
        more = describe(self.material(tmp_path, measures=False, seeds=(0, 1, 2)))
        assert "| lenet300 | growth window | 3 | 99.000 .. 99.100 (2 of 3) | 90.000 .. 91.000 (2 of 3) |" in more

    def test_differences_have_an_interval(self, tmp_path, trained):
        # 0 and 0.01 points: 0.005 ± t(1) * 0.005
        assert "| +0.0050 ± 0.005 | -0.059 .. +0.069 |" in describe(self.material(tmp_path, measures=False))
