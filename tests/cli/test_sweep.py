"""``regrow sweep`` as users see it, killed and repeated."""

import os
import signal
import subprocess
import sys
import time

import pytest

from regrow import presets
from regrow.cli.main import main
from regrow.config import override
from regrow.experiments.grid import expand
from regrow.experiments.rows import read_runs
from regrow.training.ledger import read_rows
from tests.experiments.fakes import FakeExecutor, finish


@pytest.fixture
def fake(monkeypatch):
    executor = FakeExecutor()
    monkeypatch.setattr("regrow.experiments.sweep.LocalExecutor", lambda slots, gpus: executor)
    return executor


def test_a_grid_is_run_and_summed_up(tmp_path, fake, capsys):
    assert main(["sweep", "demo", "--grid", "density=0.05,0.1", "--seeds", "2", "--out", str(tmp_path)]) == 0
    assert [(job.config.sparse.density, job.config.seed) for job in fake.ran] == [
        (0.05, 0),
        (0.05, 1),
        (0.1, 0),
        (0.1, 1),
    ]
    assert f"4 of 4 runs finished; rows in {tmp_path / 'runs.csv'}" in capsys.readouterr().out
    assert fake.stops == 1


def test_the_configuration_has_a_seed_too(tmp_path, fake):
    assert main(["sweep", "demo", "--seed", "3", "--out", str(tmp_path)]) == 0
    assert main(["sweep", "demo", "--seed", "3", "--seeds", "4,5", "--out", str(tmp_path)]) == 0
    assert [job.config.seed for job in fake.ran] == [3, 4, 5]


def test_failures_are_listed_and_set_the_exit_code(tmp_path, fake, capsys):
    def error_of(config):
        if config.seed:
            raise ValueError("out of luck")
        return 2.0

    fake.error_of = error_of
    assert main(["sweep", "demo", "--seeds", "3", "--out", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    message, first, second = out[out.index("failed twice") :].splitlines()[:3]
    assert message == "failed twice: out of luck"
    assert first.startswith(f"    {tmp_path}/lenet300-sparse-momentum-0.05-s1-")
    assert second.startswith(f"    {tmp_path}/lenet300-sparse-momentum-0.05-s2-")
    assert first.endswith("/output.txt")
    assert "1 of 3 runs finished" in out


def test_wrong_numbers_of_jobs_are_refused(tmp_path, capsys):
    assert main(["sweep", "demo", "--jobs", "0", "--out", str(tmp_path)]) == 2
    assert "--jobs must be at least 1" in capsys.readouterr().err


def test_ctrl_c_says_how_to_go_on(tmp_path, fake, capsys, monkeypatch):
    def interrupted(config):
        raise KeyboardInterrupt

    fake.error_of = interrupted
    assert main(["sweep", "demo", "--out", str(tmp_path)]) == 130
    assert "the same command continues" in capsys.readouterr().out
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGKILL, -signal.SIGKILL), pytest.param(signal.SIGTERM, 130, marks=pytest.mark.deep)]
)
def test_killed_and_repeated_it_continues(tmp_path, number, code):
    """The run that was under way resumes, and the one that was finished before is not touched."""
    overrides = {"epochs": "12", "evaluate_every": "6", "log_every": "5", "threads": "1"}
    first, second = expand(override(presets.find("demo"), overrides), {}, [0, 1])
    finish(first, tmp_path)
    settings = [text for key, value in overrides.items() for text in (f"--{key}", value)]
    command = [sys.executable, "-m", "regrow", "sweep", "demo", *settings]
    command += ["--seeds", "2", "--jobs", "1", "--out", str(tmp_path)]
    home = tmp_path / second.key

    sweep = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    wait_for_rows(home, 3, sweep)
    os.kill(sweep.pid, number)
    out, _ = sweep.communicate(timeout=120)
    assert sweep.returncode == code
    assert ("stopped; the same command continues" in out) == (number == signal.SIGTERM)
    assert not (home / "result.json").exists()

    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout
    assert "1 of 2 runs were finished before" in done.stdout
    assert "2 of 2 runs finished" in done.stdout
    assert "resuming at step" in (home / "output.txt").read_text()
    assert not (tmp_path / first.key / "output.txt").exists()
    assert [row["seed"] for row in read_runs(tmp_path / "runs.csv")] == ["0", "1"]


def wait_for_rows(home, count, sweep):
    """Wait until a run has recorded so many rows."""
    while len(read_rows(home / "metrics.jsonl")) < count:
        assert sweep.poll() is None, f"the sweep ended by itself: {sweep.communicate()[0]}"
        time.sleep(0.02)
