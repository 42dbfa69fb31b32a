"""Experiments end to end with runs that take no time."""

import pytest

from regrow.errors import ConfigurationError
from regrow.experiments.catalogue import find
from regrow.experiments.experiment import Experiment
from regrow.experiments.reproduce import collect, read_runs, reproduce, table_from_rows, with_overrides
from tests.experiments.fakes import FakeExecutor, cell

TINY = Experiment("tiny", "a tiny table", 2, lambda: [cell(label="dense", density=1.0), cell(), cell(density=0.1)])


def test_results_are_apart_from_runs(tmp_path):
    runs, results = tmp_path / "runs", tmp_path / "results"
    done = reproduce(TINY, TINY.cells(), [0, 1], runs, results, FakeExecutor())
    assert [line.summary.n for line in done.table] == [2, 2, 2]
    assert len(done.outcomes) == 6
    assert sorted(path.name for path in results.iterdir()) == [
        "runs.csv", "table.csv", "table.md", "table.tex", "tiny-lenet300.png", "tiny-lenet300.svg",
    ]  # fmt: skip
    assert len([path for path in runs.iterdir() if path.is_dir()]) == 6


def test_the_table_follows_from_the_committed_rows(tmp_path):
    done = reproduce(TINY, TINY.cells(), [0, 1], tmp_path / "runs", tmp_path, FakeExecutor())
    assert table_from_rows(TINY.cells(), read_runs(tmp_path / "runs.csv")) == done.table


def test_a_part_is_added_to_what_is_there(tmp_path):
    cells = TINY.cells()
    reproduce(TINY, cells[:1], [0], tmp_path / "a", tmp_path, FakeExecutor(), shown=cells)
    done = reproduce(TINY, cells[1:2], [0], tmp_path / "b", tmp_path, FakeExecutor(), shown=cells)
    assert [line.cell.density for line in done.table] == [1.0, 0.05]
    assert (tmp_path / "table.md").read_text().count("lenet300") == 2


def test_collect_runs_nothing(tmp_path):
    done = collect(TINY, TINY.cells(), [0], tmp_path / "runs", tmp_path)
    assert (done.table, done.outcomes, done.texts) == ([], [], [])
    assert (tmp_path / "table.md").is_file()


def test_overrides_reach_the_runs(tmp_path):
    from regrow.config import override

    cells = with_overrides(TINY.cells(), lambda config: override(config, {"execution": "sparse"}))
    executor = FakeExecutor()
    done = reproduce(TINY, cells, [0], tmp_path / "runs", tmp_path, executor)
    assert {job.config.sparse.execution for job in executor.ran} == {"sparse"}
    assert done.table[1].execution == "sparse, window 0.001"


class TestDenseEquivalence:
    experiment = find("dense-equivalence")

    def run(self, tmp_path, error_of, seeds=(0, 1, 2)):
        cells = self.experiment.chosen("vgg16-d", None, None)
        executor = FakeExecutor(error_of, extra={"speedup": {"both": 3.0, "weights": 2.0}})
        return reproduce(self.experiment, cells, list(seeds), tmp_path, tmp_path, executor), executor

    def test_it_stops_at_the_first_overlap(self, tmp_path):
        def error_of(config):
            gap = 0.0 if config.sparse.method == "dense" else max(0.0, 0.12 - config.sparse.density) * 10
            return 6.5 + gap + 0.05 * config.seed

        done, executor = self.run(tmp_path, error_of)
        assert [job.config.sparse.density for job in executor.ran[::3]] == [1.0, 0.05, 0.1, 0.15]
        assert len(read_runs(tmp_path / "runs.csv")) == 12
        assert "| vgg16-d | 15 | 6.550 ± 0.029 | 2.00x | not measured | 3.00x |" in done.texts[0]

    def test_without_a_dense_result_it_does_not_stop_early(self, tmp_path):
        def error_of(config):
            if config.sparse.method == "dense":
                raise ValueError("no")
            return 6.5

        done, executor = self.run(tmp_path, error_of)
        assert len({job.config.sparse.density for job in executor.ran}) == 20
        assert "not yet" in done.texts[0]

    def test_one_seed_has_no_interval(self, tmp_path):
        with pytest.raises(ConfigurationError, match="at least two seeds"):
            self.run(tmp_path, lambda config: 6.5, seeds=(0,))
