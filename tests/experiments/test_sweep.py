"""Sweeps: what is run again and what not, failures, threads, interruption."""

import contextlib
import json
import signal
import sys
from dataclasses import replace

import pytest

from regrow.errors import CheckpointWarning
from regrow.experiments import sweep as module
from regrow.experiments.grid import Job
from regrow.experiments.rows import read_runs
from regrow.experiments.sweep import LocalExecutor, Outcome, fraction, is_finished, run_job, sweep, threads_per_job
from tests.experiments.fakes import BASE, FakeExecutor, finish

JOBS = [Job(replace(BASE, seed=seed)) for seed in range(3)]


class Watch:
    def __init__(self):
        self.begun, self.seen = None, []

    def started(self, jobs, todo, begun=0.0, at_most=False):
        assert not at_most
        self.begun = (len(jobs) - len(todo), len(jobs), begun / JOBS[0].work)

    def ended(self, outcome, again):
        self.seen.append((outcome.job.config.seed, bool(outcome.error), again))

    def tick(self, running):
        assert running >= 0


class TestSweep:
    def test_all_are_run_and_recorded(self, tmp_path):
        watch, executor = Watch(), FakeExecutor()
        outcomes = sweep(JOBS, tmp_path, executor, watch)
        assert [outcome.job for outcome in outcomes] == JOBS
        assert not any(outcome.error for outcome in outcomes)
        assert watch.begun == (0, 3, 0.0)
        assert sorted(watch.seen) == [(0, False, False), (1, False, False), (2, False, False)]
        assert [row["seed"] for row in read_runs(tmp_path / "runs.csv")] == ["0", "1", "2"]

    def test_finished_runs_are_never_repeated(self, tmp_path):
        finish(JOBS[1], tmp_path)
        watch, executor = Watch(), FakeExecutor()
        assert len(sweep(JOBS, tmp_path, executor, watch)) == 3
        assert [job.config.seed for job in executor.ran] == [0, 2]
        assert watch.begun == (1, 3, 0.0)
        again = FakeExecutor()
        sweep(JOBS, tmp_path, again)
        assert again.ran == []

    def test_what_killed_runs_did_before_is_told(self, tmp_path):
        finish(JOBS[1], tmp_path)
        home = tmp_path / JOBS[2].key
        home.mkdir()
        (home / "metrics.jsonl").write_text(
            '{"kind": "train", "epoch": 0.75, "step": 27, "loss": 1.0, "accuracy": 0.5}\n'
        )
        watch = Watch()
        sweep(JOBS, tmp_path, FakeExecutor(), watch)
        assert watch.begun == (1, 3, 0.75)

    def test_a_part_of_more_is_not_announced_again(self, tmp_path):
        watch = Watch()
        sweep(JOBS, tmp_path, FakeExecutor(), watch, announced=True)
        assert watch.begun is None

    def test_rows_of_other_grids_in_the_folder_stay(self, tmp_path):
        sweep(JOBS, tmp_path, FakeExecutor())
        sweep([Job(replace(BASE, epochs=2))], tmp_path, FakeExecutor())
        assert len(read_runs(tmp_path / "runs.csv")) == 4

    def test_a_finished_short_run_is_not_taken_for_a_longer_one(self, tmp_path):
        executor = FakeExecutor(lambda config: 2.0 if config.max_steps == 200 else 5.0)
        for steps in (100, 200):
            sweep([Job(replace(BASE, max_steps=steps))], tmp_path, executor)
        assert [job.config.max_steps for job in executor.ran] == [100, 200]
        rows = read_runs(tmp_path / "runs.csv")
        assert [(row["max_steps"], row["test_error"]) for row in rows] == [("100", "5.0"), ("200", "2.0")]

    def test_equal_jobs_are_one_run(self, tmp_path):
        executor = FakeExecutor()
        assert len(sweep([JOBS[0], JOBS[0]], tmp_path, executor)) == 1
        assert len(executor.ran) == 1

    def test_failures_are_tried_once_more_and_do_not_stop_the_rest(self, tmp_path):
        attempts = []

        def error_of(config):
            attempts.append(config.seed)
            if config.seed == 0 or (config.seed == 1 and attempts.count(1) == 1):
                raise ValueError("no luck")
            return 2.0

        watch = Watch()
        first, second, third = sweep(JOBS, tmp_path, FakeExecutor(error_of), watch)
        assert (first.error, second.error, third.error) == ("no luck", "", "")
        assert sorted(attempts) == [0, 0, 1, 1, 2]
        assert sorted(watch.seen) == [
            (0, True, False),
            (0, True, True),
            (1, False, False),
            (1, True, True),
            (2, False, False),
        ]
        assert [row["seed"] for row in read_runs(tmp_path / "runs.csv")] == ["1", "2"]

    def test_a_worker_that_is_lost_is_a_failure_too(self, tmp_path):
        def error_of(config):
            raise ConnectionError("node lost")

        (outcome,) = sweep(JOBS[:1], tmp_path, FakeExecutor(error_of))
        assert outcome.error == "ConnectionError: node lost"

    def test_interruption_stops_the_executor(self, tmp_path):
        class Interrupted(Watch):
            def ended(self, outcome, again):
                raise KeyboardInterrupt

        executor = FakeExecutor()
        with pytest.raises(KeyboardInterrupt):
            sweep(JOBS, tmp_path, executor, Interrupted())
        assert executor.stops == 1

    def test_an_interruption_that_was_swallowed_is_not_lost(self, tmp_path):
        class Swallowed(Watch):
            def ended(self, outcome, again):
                with contextlib.suppress(KeyboardInterrupt):  # as Python does in destructors
                    signal.raise_signal(signal.SIGINT)

        def error_of(config):
            raise ConnectionError("node lost")

        executor = FakeExecutor(error_of)
        with module.interruptible(), pytest.raises(KeyboardInterrupt):
            sweep(JOBS, tmp_path, executor, Swallowed())
        assert executor.stops == 1


class TestThreads:
    @pytest.mark.parametrize(("slots", "jobs", "threads"), [(8, 90, 1), (2, 90, 4), (8, 1, 8), (3, 9, 2), (16, 90, 1)])
    def test_cores_are_divided(self, monkeypatch, slots, jobs, threads):
        monkeypatch.setattr(module, "cores", lambda: 8)
        assert threads_per_job(slots, jobs) == threads

    def test_what_is_left_of_a_grid_gets_the_same_threads(self, tmp_path, monkeypatch):
        monkeypatch.setattr(module, "cores", lambda: 8)
        finish(JOBS[0], tmp_path)
        finish(JOBS[1], tmp_path)
        executor = FakeExecutor()
        sweep(JOBS, tmp_path, executor)
        assert executor.threads == [4]


class TestRunJob:
    @pytest.fixture
    def command(self, monkeypatch):
        """Replaces the worker by a line of Python."""
        real = module.subprocess.Popen

        def install(code):
            monkeypatch.setattr(
                module.subprocess,
                "Popen",
                lambda command, **options: real([sys.executable, "-c", code, command[-1]], **options),
            )

        return install

    def test_a_failure_names_the_last_line_and_keeps_all_of_them(self, tmp_path, command):
        command("print('first'); raise SystemExit('cannot be')")
        outcome = run_job(JOBS[0], tmp_path, 1)
        assert outcome.error == "exit code 1: cannot be"
        assert (tmp_path / JOBS[0].key / "output.txt").read_text() == "first\ncannot be\n"

    def test_divergence_is_an_ending_that_is_noted_and_not_repeated(self, tmp_path, command):
        machine = {"threads": 1, "processor": "a processor", "torch": "2.13.0", "regrow": "0.1.0"}
        note = {"identity": JOBS[0].config.identity(), "steps": 1000, "message": "the loss is nan"}
        command(
            "import pathlib, sys; home = pathlib.Path(sys.argv[-1]);"
            f"(home / 'environment.json').write_text({json.dumps(machine)!r});"
            f"(home / 'diverged.json').write_text({json.dumps(note)!r});"
            "print('the loss is nan at step 1087'); sys.exit(3)"
        )
        watch = Watch()
        (outcome,) = sweep(JOBS[:1], tmp_path, LocalExecutor(1), watch)
        assert (outcome.error, outcome.diverged) == ("", "the loss is nan at step 1087")
        assert watch.seen == [(0, False, False)]
        (row,) = read_runs(tmp_path / "runs.csv")
        assert (row["test_error"], row["steps"], row["seed"]) == ("nan", "1000", "0")
        executor = FakeExecutor()
        sweep(JOBS[:1], tmp_path, executor)
        assert executor.ran == []

    def test_threads_reach_the_process(self, tmp_path, command):
        command("import os; print(os.environ['OMP_NUM_THREADS'], os.environ['MKL_NUM_THREADS'])")
        outcome = run_job(JOBS[0], tmp_path, 3)
        assert "exit code 0: 3 3" in outcome.error, "no result was written, so this is a failure"

    def test_each_of_the_runs_at_once_has_a_gpu_of_its_own(self, tmp_path, command):
        command("import os, time; time.sleep(0.2); print(os.environ.get('CUDA_VISIBLE_DEVICES'))")
        executor = LocalExecutor(2, gpus=["3", "GPU-5"])
        errors = [executor.submit(run_job, job, tmp_path, 1).result().error for job in JOBS[:2]]
        futures = [executor.submit(run_job, job, tmp_path, 1) for job in JOBS[:2]]
        assert {error.split()[-1] for error in errors} == {"3", "GPU-5"}
        assert {future.result().error.split()[-1] for future in futures} == {"3", "GPU-5"}

    def test_more_runs_than_gpus_share_them(self):
        executor = LocalExecutor(3, gpus=["0", "1"])
        assert [executor._free.get() for _ in range(3)] == ["0", "1", "0"]

    def test_without_gpus_the_choice_is_left_to_the_environment(self, tmp_path, command, monkeypatch):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
        command("import os; print(os.environ['CUDA_VISIBLE_DEVICES'])")
        assert LocalExecutor(1).submit(run_job, JOBS[0], tmp_path, 1).result().error.endswith(": 7")

    def test_interrupted_it_lets_the_run_save(self, tmp_path, command, monkeypatch):
        command(
            "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.3), print('saved'), sys.exit(0)));"
            "print('up', flush=True); time.sleep(600)"
        )
        output = tmp_path / JOBS[0].key / "output.txt"

        def interrupted(child):
            while not output.read_text():
                pass
            raise KeyboardInterrupt

        monkeypatch.setattr(module, "_end_of", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run_job(JOBS[0], tmp_path, 1)
        assert output.read_text() == "up\nsaved\n"
        assert not module._CHILDREN

    def test_stop_ends_what_runs_and_starts_nothing_more(self, tmp_path, command):
        command("import time; print('up', flush=True); time.sleep(600)")
        executor = LocalExecutor(1)
        futures = [executor.submit(run_job, job, tmp_path, 1) for job in JOBS[:2]]
        output = tmp_path / JOBS[0].key / "output.txt"
        while not (output.is_file() and output.read_text()):
            pass
        executor.stop()
        assert "exit code -15" in futures[0].result().error
        assert futures[1].cancelled()
        assert not module._CHILDREN


class TestState:
    def test_a_result_of_another_configuration_does_not_count(self, tmp_path):
        finish(JOBS[0], tmp_path, identity="another")
        assert not is_finished(JOBS[0], tmp_path)

    def test_fraction(self, tmp_path):
        job = Job(replace(BASE, epochs=4))
        assert fraction(job, tmp_path) == 0.0
        home = tmp_path / job.key
        home.mkdir()
        about = {"kind": "train", "loss": 1.0, "accuracy": 0.5}
        rows = [{**about, "epoch": 0.5, "step": 10}, {**about, "epoch": 1.0, "step": 20}]
        (home / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        assert fraction(job, tmp_path) == 0.25
        for steps, share in ((40, 0.5), (10, 1.0), (400, 0.25)):
            short = Job(replace(job.config, max_steps=steps))
            (tmp_path / short.key).mkdir()
            (tmp_path / short.key / "metrics.jsonl").write_text((home / "metrics.jsonl").read_text())
            assert fraction(short, tmp_path) == share
        (home / "metrics.jsonl").write_text(json.dumps(rows[0]) + '\n{"epo')
        assert fraction(job, tmp_path) == 0.125, "half a line is being written"

    def test_outcomes_compare(self):
        assert Outcome(JOBS[0], 1.0) == Outcome(JOBS[0], 1.0)


class TestDamage:
    @pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"identity": 3, "steps": []}'])
    def test_a_damaged_result_is_named_and_its_run_repeated(self, content, tmp_path):
        finish(JOBS[0], tmp_path)
        (tmp_path / JOBS[0].key / "result.json").write_bytes(content)
        executor = FakeExecutor()
        with pytest.warns(CheckpointWarning, match=r"result\.json is damaged"):
            sweep(JOBS[:1], tmp_path, executor)
        assert executor.ran == JOBS[:1]
        assert len(read_runs(tmp_path / "runs.csv")) == 1

    @pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"{}"])
    def test_a_damaged_environment_does_not_stop_a_sweep(self, content, tmp_path):
        for job in JOBS[:2]:
            finish(job, tmp_path)
        (tmp_path / JOBS[0].key / "environment.json").write_bytes(content)
        (tmp_path / JOBS[0].key / "speed.jsonl").write_bytes(b"\xff\n" + content)
        with pytest.warns() as told:
            sweep(JOBS[:2], tmp_path, FakeExecutor())
        named = " ".join(str(warning.message) for warning in told)
        assert "speed.jsonl is damaged" in named
        assert ("environment.json is damaged" in named) == (content != b"{}")
        rows = read_runs(tmp_path / "runs.csv")
        assert sorted(row["processor"] for row in rows) == ["", "a processor"]
