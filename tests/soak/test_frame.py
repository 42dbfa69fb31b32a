"""The frame of long searches: turns, sums over calls, goals."""

import json
import time
from types import SimpleNamespace

from regrow import environment
from tests.soak import record
from tests.soak.__main__ import soak, suites
from tests.soak.sums import Sums, table


def counting(name, calls, goal=5, **more):
    def run(deadline, first):
        assert deadline > time.monotonic()
        calls.append((name, first))
        return {"cases": 2, **more}

    return SimpleNamespace(GOAL={"cases": goal}, ZERO=("lost",), run=run)


def test_suites_take_turns_until_their_goals_are_met_and_go_on_where_they_were(tmp_path):
    calls = []
    chosen = {"a": counting("a", calls), "b": counting("b", calls, goal=2)}
    soak(chosen, Sums(tmp_path / "s" / "soak.json"), seconds=1000)
    assert calls == [("a", 0), ("b", 0), ("a", 2), ("a", 4)]
    assert json.loads((tmp_path / "s" / "soak.json").read_text()) == {"a": {"cases": 6}, "b": {"cases": 2}}
    chosen["a"].GOAL["cases"] = 7
    soak(chosen, Sums(tmp_path / "s" / "soak.json"), seconds=1000)
    assert calls[4:] == [("a", 6)]


def test_no_time_no_turn(tmp_path):
    calls = []
    soak({"a": counting("a", calls)}, Sums(tmp_path / "soak.json"), seconds=0)
    assert calls == []


def test_table_shows_sums_beside_goals_and_failures(tmp_path):
    sums = Sums(tmp_path / "soak.json")
    sums.add("a", {"cases": 4000, "lost": 0})
    sums.add("b", {"cases": 9, "lost": 1, "odd": 3})
    text = table(sums, {"a": counting("a", [], goal=5000), "b": counting("b", []), "c": counting("c", [], goal=0)})
    lines = text.splitlines()
    assert any("4,000 of 5,000 cases" in line and "goes on" in line for line in lines)
    assert any("9 of 5 cases" in line and "1 lost" in line and "3 odd" in line and "fails" in line for line in lines)
    assert any("0 of 0 cases" in line and "met" in line for line in lines)
    sums.forget("b")
    assert sums.of("b", "lost") == 0


def test_every_suite_declares_what_the_frame_asks_for():
    for suite in suites().values():
        assert suite.GOAL
        assert callable(suite.run)
        assert not set(suite.GOAL) & set(suite.ZERO)


def test_counts_are_kept_by_code_and_machine(tmp_path):
    path, calls = tmp_path / "results" / "soak.csv", []
    for _ in range(2):
        soak({"a": counting("a", calls, goal=3, lost=0)}, Sums(tmp_path / "soak.json"), seconds=1000, kept=path)
    rows = {row["what"]: row for row in record.read(path)}
    assert rows["cases"]["count"] == "4"
    assert rows["lost"]["count"] == "0"
    assert rows["cases"]["code"] == environment.code()
    record.add(path, "a", {"cases": 1}, {**record.place(), "code": "other"})
    assert sorted((row["count"], row["code"] == "other") for row in record.read(path) if row["what"] == "cases") == [
        ("1", True),
        ("4", False),
    ]
