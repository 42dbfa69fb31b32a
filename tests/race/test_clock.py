"""Seconds of a quiet machine in place of those as run."""

import json
from collections import Counter

import pytest
import torch

from regrow.cli.main import main
from regrow.race import clock, command
from regrow.race.clock import time_steps
from regrow.race.entries import base_of, entries_of
from regrow.race.seconds import clocked
from regrow.race.stored import read, read_lines
from regrow.training.run import Run
from tests.race.test_command import REST, WORDS, rows_in


def reading(step, plain, collecting, update, setting="a", seed=0):
    values = {"plain": plain, "collecting": collecting, "update": update}
    return {"setting": setting, "seed": seed, "step": step, **values}


def row(step, collected, updates, setting="a", seed=0):
    return {"setting": setting, "seed": seed, "step": step, "collected": collected, "updates": updates, "seconds": 99.0}


def test_every_stretch_has_the_step_of_the_masks_at_its_beginning():
    readings = [reading(0, 1.0, 3.0, 10.0), reading(0, 3.0, 5.0, 10.0), reading(10, 5.0, 6.0, 1.0)]
    rows = clocked([row(10, 2, 1), row(14, 2, 1), row(20, 4, 2)], readings)
    first = 8 * 2.0 + 2 * 4.0 + 10.0
    assert [r["seconds"] for r in rows] == [first, first + 4 * 5.0, first + 4 * 5.0 + 4 * 5.0 + 2 * 6.0 + 1.0]
    assert [r["as_run"] for r in rows] == [99.0] * 3


def test_entries_are_told_apart_and_those_without_readings_left_out():
    rows = [row(2, 0, 0), row(2, 0, 0, setting="b"), row(2, 0, 0, seed=1)]
    found = clocked(rows, [reading(0, 1.0, 1.0, 0.0), reading(0, 2.0, 2.0, 0.0, seed=1)])
    assert [(r["setting"], r["seed"], r["seconds"]) for r in found] == [("a", 0, 2.0), ("a", 1, 4.0)]


def test_steps_are_timed_by_kind():
    base = base_of("mnist-sample", {"model": "lenet300", "threads": "1"})
    for entry in entries_of(base, "dense,sparse-momentum@0.1,set@0.1,rigl@0.1", 1, "masked"):
        found = time_steps(entry.config, {})
        assert found["plain"] > 0
        assert found["update"] >= 0
        collects = entry.config.sparse.method == "sparse-momentum"
        assert (found["collecting"] != found["plain"]) == collects


def test_a_method_that_begins_with_an_update_is_timed_at_the_masks_given(tmp_path, monkeypatch):
    (entry,) = entries_of(base_of("mnist-sample", {"model": "lenet300", "threads": "1"}), "rigl@0.1", 1, "masked")
    masks = {sparse.name: sparse.mask.clone() for sparse in Run(entry.config, tmp_path).parts.handle.parameters}
    kinds, stepped = [], clock._Watch.stepped

    def looked_at(self, run):
        counts = Counter({kind: len(seconds) for kind, seconds in self.seconds.items()})
        stepped(self, run)
        kinds.extend(Counter({kind: len(seconds) for kind, seconds in self.seconds.items()}) - counts)
        same = all(torch.equal(sparse.mask, masks[sparse.name]) for sparse in run.parts.handle.parameters)
        assert same == (kinds[-1:] != ["update"])

    monkeypatch.setattr(clock._Watch, "stepped", looked_at)
    time_steps(entry.config, masks)
    assert kinds == ["plain"] * 11 + ["update"]


def test_a_race_with_the_clock_shows_its_seconds(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "_step_seconds", lambda config, *_: float(config.channels_last))
    assert main([*WORDS, *REST, "--clock", "1", "--out", str(tmp_path)]) == 0
    readings, rows = read_lines(tmp_path / "clock.jsonl"), rows_in(tmp_path)
    steps = {(r["setting"], r["step"]) for r in readings}
    assert ("dense", 0) in steps
    assert {step for setting, step in steps if setting.startswith("sparse")} == {0, 4, 8, 12}
    assert all("threads: 1" in r["machine"] and r["code"] for r in [*readings, *rows])
    shown = clocked(rows, readings)
    last = next(r for r in reversed(shown) if r["setting"] == "dense")
    printed = capsys.readouterr().out
    assert f"| {last['seconds']:,.1f} | 1.000 |" in printed
    assert "| s as run |" in printed
    assert "at the masks that each run kept" in (tmp_path / "race.md").read_text()
    found = read(tmp_path)
    assert (found.rows, found.timed, [line.tested for line in found.lines]) == (shown, True, [True] * 3)
    (tmp_path / "clock.jsonl").write_text("".join(json.dumps(r) + "\n" for r in readings if r["setting"] != "dense"))
    assert main([*WORDS, *REST, "--out", str(tmp_path)]) == 0
    assert "at the masks that each run kept" not in (tmp_path / "race.md").read_text()
    assert "s as run" not in (tmp_path / "race.md").read_text()


def test_rounds_cannot_be_negative(capsys):
    assert main([*WORDS, "--clock", "-1"]) == 2
    assert "--clock must not be negative" in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["collected", "updates"])
def test_rows_from_before_these_were_counted_have_none(missing):
    old = {key: value for key, value in row(4, 0, 0).items() if key != missing}
    assert clocked([old], [reading(0, 1.0, 9.0, 9.0)])[0]["seconds"] == 4.0
