"""What a sweep says while it runs."""

import io
from dataclasses import replace

from rich.console import Console

from regrow.experiments.grid import Job
from regrow.experiments.sweep import Outcome
from regrow.experiments.watch import SweepWatch, readable, time_left
from tests.experiments.fakes import BASE

JOB = Job(BASE)
LONG = Job(replace(BASE, epochs=9))


def test_time_left():
    assert time_left(60.0, 2, 4, 10) == 180.0
    assert time_left(60.0, 2, 2, 10) is None
    assert time_left(60.0, 0, 0.5, 1) == 60.0


def test_readable():
    assert [readable(s) for s in (0.4, 59, 60, 3600, 90_000, 31_536_000 * 3)] == [
        "0 s",
        "59 s",
        "1 min",
        "1 h",
        "1 d 1 h",
        "3 y",
    ]


def watched(terminal):
    now = [0.0]
    console = Console(file=io.StringIO(), force_terminal=terminal, width=200)
    with SweepWatch(console, clock=lambda: now[0]) as watch:
        watch.started([JOB] * 4, [JOB] * 3)
        now[0] = 30.0
        watch.tick(0.5 * JOB.work)
        watch.ended(Outcome(JOB, 30.0), again=False)
        watch.tick(0.0)
        watch.ended(Outcome(JOB, 1.0, "exit code 1: no"), again=True)
        now[0] = 90.0
        watch.ended(Outcome(JOB, 1.0, "exit code 1: no"), again=False)
    return console.file.getvalue()


def test_plain_lines_with_the_time_left():
    lines = watched(terminal=False).splitlines()
    assert lines[0] == "1 of 4 runs were finished before"
    assert lines[1] == f"[2/4] {JOB.key}: finished in 30 s; about 30 s left"
    assert lines[2] == f"[2/4] {JOB.key}: failed, exit code 1: no; will be tried once more; about 1 min left"
    assert lines[3] == f"[3/4] {JOB.key}: failed, exit code 1: no; about 45 s left"
    assert len(lines) == 4


def test_a_terminal_has_a_bar_with_the_time_left():
    shown = watched(terminal=True)
    assert "3/4" in shown
    assert "about 45 s left" in shown


def test_work_of_killed_runs_is_not_taken_for_work_since_the_start():
    now = [0.0]
    console = Console(file=io.StringIO(), width=200)
    with SweepWatch(console, clock=lambda: now[0]) as watch:
        watch.started([JOB] * 4, [JOB] * 3, begun=0.5 * JOB.work)
        now[0] = 30.0
        watch.tick(0.5 * JOB.work)
        assert watch._left() == "", "nothing has moved yet"
        watch.ended(Outcome(JOB, 30.0), again=False)
        watch.tick(0.0)
        assert watch._left() == "about 2 min left", "half a run in 30 s, two runs to go"


def test_several_sweeps_have_one_bar_and_a_bound_that_shrinks():
    now = [0.0]
    console = Console(file=io.StringIO(), width=200)
    with SweepWatch(console, clock=lambda: now[0]) as watch:
        watch.started([JOB] * 10, [JOB] * 10, at_most=True)
        now[0] = 30.0
        watch.ended(Outcome(JOB, 30.0), again=False)
        assert watch._left() == "at most 4 min 30 s left"
        watch.skipped([JOB] * 7, "lenet300: enough")
        assert watch._left() == "at most 1 min left"
        watch.skipped([], "lenet5: enough")
    lines = console.file.getvalue().splitlines()
    assert lines[1:] == ["lenet300: enough; 7 runs are left out", "lenet5: enough"]


def test_a_long_run_counts_for_as_much_as_it_takes():
    now = [0.0]
    with SweepWatch(Console(file=io.StringIO(), width=200), clock=lambda: now[0]) as watch:
        watch.started([JOB, LONG], [JOB, LONG])
        now[0] = 10.0
        watch.ended(Outcome(JOB, 10.0), again=False)
        assert watch._left() == "about 1 min 30 s left"
        now[0] = 100.0
        watch.ended(Outcome(LONG, 90.0), again=False)
        assert watch._left() == ""
