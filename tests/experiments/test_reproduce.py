"""Experiments end to end with runs that take no time."""

import multiprocessing

import pytest

from regrow.errors import ConfigurationError
from regrow.experiments.catalogue import find
from regrow.experiments.experiment import Experiment
from regrow.experiments.reproduce import collect, read_runs, reproduce, table_from_rows, with_overrides
from tests.experiments.fakes import FakeExecutor, cell, finish

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
    assert done.table[1].computed == "sparse, window 0.1"


class Watch:
    """Keeps what it is told about all the runs."""

    def __init__(self):
        self.begun, self.left_out = [], []

    def started(self, jobs, todo, begun=0.0, at_most=False):
        self.begun.append((len(jobs) - len(todo), len(jobs), begun, at_most))

    def skipped(self, jobs, why):
        self.left_out.append((len(jobs), why))

    def ended(self, outcome, again):
        pass

    def tick(self, running):
        pass


class TestDenseEquivalence:
    experiment = find("dense-equivalence")

    def run(self, tmp_path, error_of, seeds=(0, 1, 2), watch=None):
        cells = self.experiment.chosen("vgg16-d", None, None)
        executor = FakeExecutor(error_of, extra={"speedup": {"both": 3.0, "weights": 2.0}})
        return reproduce(self.experiment, cells, list(seeds), tmp_path, tmp_path, executor, watch), executor

    def test_it_stops_at_the_first_overlap(self, tmp_path):
        def error_of(config):
            gap = 0.0 if config.sparse.method == "dense" else max(0.0, 0.12 - config.sparse.density) * 10
            return 6.5 + gap + 0.05 * config.seed

        done, executor = self.run(tmp_path, error_of)
        assert [job.config.sparse.density for job in executor.ran[::3]] == [1.0, 0.05, 0.1, 0.15]
        assert len(read_runs(tmp_path / "runs.csv")) == 12
        assert "| vgg16-d | 15 | 6.550 ± 0.029 | 2.00x | not measured | 3.00x |" in done.texts[0]

    @pytest.mark.parametrize(("good", "how"), [(0, "failed"), (1, "failed"), (1, "collapsed"), (0, "collapsed")])
    def test_without_a_dense_interval_nothing_else_runs(self, tmp_path, good, how):
        def error_of(config):
            if config.seed < good:
                return 6.5
            if how == "failed":
                raise ValueError("no")
            return 90.0

        watch = Watch()
        done, executor = self.run(tmp_path, error_of, watch=watch)
        assert {job.config.sparse.method for job in executor.ran} == {"dense"}
        why = f"no interval to reach, {good or 'no'} run{'s' * (not good)} of the dense network learned and two are needed"
        assert watch.left_out == [(19 * 3, f"vgg16-d: {why}")]
        if good or how == "collapsed":
            assert f"vgg16-d: {why}.\n" in done.texts[0]
            assert "| vgg16-d | no dense result |" in done.texts[0]

    @pytest.mark.parametrize("good", [0, 1])
    def test_a_density_without_an_interval_decides_nothing(self, tmp_path, good):
        def error_of(config):
            if config.sparse.density == 0.05 and config.seed >= good:
                raise ValueError("no")
            return 6.5 + 0.01 * config.seed

        done, executor = self.run(tmp_path, error_of)
        assert sorted({job.config.sparse.density for job in executor.ran}) == [0.05, 0.1, 1.0]
        assert f"| vgg16-d | {'' if good else 'at most '}10 |" in done.texts[0]
        note = "vgg16-d: 5% weights decide nothing, fewer than two runs learned.\n"
        assert (note in done.texts[0]) == bool(good), "runs that failed are not there"

    def test_progress_is_that_of_all_densities_and_shrinks_with_what_is_left_out(self, tmp_path):
        watch = Watch()
        self.run(tmp_path, lambda config: 6.5 + 0.1 * config.seed, watch=watch)
        assert watch.begun == [(0, 60, 0.0, True)]
        assert watch.left_out == [(54, "vgg16-d: the interval at 5% weights overlaps the dense network's")]
        watch = Watch()
        self.run(tmp_path, lambda config: 6.5, watch=watch)
        assert watch.begun == [(6, 60, 0.0, True)]

    def test_one_seed_has_no_interval(self, tmp_path):
        with pytest.raises(ConfigurationError, match="at least two seeds"):
            self.run(tmp_path, lambda config: 6.5, seeds=(0,))


def test_analyses_keep_what_a_narrowed_command_does_not_run(tmp_path):
    experiment = find("growth-window")
    for job in (job for arm in experiment.cells() for job in arm.jobs([0, 1])):
        finish(job, tmp_path, 1.5 + 0.1 * job.config.seed)
    for model in ("lenet300", "lenet5"):
        done = collect(experiment, experiment.chosen(model), [0, 1], tmp_path, tmp_path, experiment.cells())
    (text,) = done.texts
    assert [line.split(" | ")[0] for line in text.splitlines()[-2:]] == ["| lenet300", "| lenet5"]


def test_two_processes_may_write_one_table(tmp_path):
    starts = multiprocessing.get_context("fork")
    parts = [starts.Process(target=_finish_and_collect, args=(tmp_path, range(8 * k, 8 * k + 8))) for k in (0, 1)]
    for part in parts:
        part.start()
    for part in parts:
        part.join(60)
    assert [part.exitcode for part in parts] == [0, 0]
    assert "| 16 |" in (tmp_path / "table.md").read_text()


def _finish_and_collect(folder, seeds):
    one = cell()
    for job in one.jobs(seeds):
        finish(job, folder)
        collect(Experiment("tiny", "a table", 1, lambda: [one], "none"), [one], seeds, folder, folder)
