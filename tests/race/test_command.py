"""A whole race, ended at any moment and repeated."""

import itertools
import json

import pytest

from regrow.cli.main import main
from regrow.race import command
from regrow.race.slices import Runner

WORDS = ["race", "mnist-sample", "--model", "lenet300", "--settings", "dense,set@0.1,sparse-momentum@0.1:macs=0.1"]
REST = [
    "--max-steps",
    "12",
    "--update-every",
    "3",
    "--slice",
    "4",
    "--images",
    "50",
    "--execution",
    "masked",
    "--threads",
    "1",
]


def rows_in(folder):
    return [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]


def plain(rows):
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


class Killed(BaseException):
    """Nothing that the command line turns into a message."""


@pytest.fixture(autouse=True)
def _one_layout(monkeypatch):
    monkeypatch.setattr(command, "_step_seconds", lambda config, *_: float(config.channels_last))


def test_a_race_ends_with_table_plot_and_page(tmp_path, capsys):
    assert main([*WORDS, *REST, "--out", str(tmp_path)]) == 0
    rows = rows_in(tmp_path)
    assert [(row["setting"], row["step"]) for row in rows if row["setting"] == "dense"] == [
        ("dense", 4),
        ("dense", 8),
        ("dense", 12),
    ]
    sparse = [row for row in rows if row["setting"].startswith("sparse")]
    assert sparse[-1]["updates"] == 4
    assert all(
        row["macs_share"] <= 0.1 * (1 + 1e-9) and row["density"] == pytest.approx(0.1, abs=1e-4) for row in sparse
    )
    assert all(a["seconds"] < b["seconds"] and a["macs"] < b["macs"] for a, b in itertools.pairwise(sparse))
    assert sparse[-1]["macs"] < 0.7 * rows[2]["macs"]
    for name in ("race.md", "race.svg", "race.png", "race.html"):
        assert (tmp_path / name).stat().st_size > 500
    assert "macs=0.1" in (tmp_path / "race.html").read_text()
    assert "| dense | 1 |" in capsys.readouterr().out


@pytest.mark.parametrize("moment", ["slice", "_note", "_error"])
def test_killed_and_repeated_it_ends_as_if_it_had_not_been(tmp_path, monkeypatch, moment):
    assert main([*WORDS, *REST, "--out", str(tmp_path / "whole")]) == 0
    calls, original = [], getattr(Runner, moment)

    def killed(self, *arguments):
        calls.append(1)
        if len(calls) == 5:
            raise Killed
        return original(self, *arguments)

    monkeypatch.setattr(Runner, moment, killed)
    with pytest.raises(Killed):
        main([*WORDS, *REST, "--out", str(tmp_path / "broken")])
    monkeypatch.setattr(Runner, moment, original)
    assert main([*WORDS, *REST, "--out", str(tmp_path / "broken")]) == 0
    assert plain(rows_in(tmp_path / "broken")) == plain(rows_in(tmp_path / "whole"))
    assert all(row["seconds"] > 0 for row in rows_in(tmp_path / "broken"))


def test_a_finished_race_is_only_shown_again(tmp_path, monkeypatch, capsys):
    assert main([*WORDS, *REST, "--out", str(tmp_path)]) == 0
    before = (tmp_path / "rows.jsonl").read_bytes()
    monkeypatch.setattr(Runner, "slice", lambda self: pytest.fail("trained again"))
    assert main([*WORDS, *REST, "--out", str(tmp_path)]) == 0
    assert (tmp_path / "rows.jsonl").read_bytes() == before


def test_settings_join_a_race_later(tmp_path):
    first, later = "dense", "dense,set@0.1"
    words = ["race", "mnist-sample", "--model", "lenet300", *REST, "--out", str(tmp_path), "--settings"]
    for settings in (first, "set@0.1", later):
        assert main([*words, settings]) == 0
    assert [row["setting"] for row in rows_in(tmp_path)] == ["dense"] * 3 + ["set@0.1"] * 3


@pytest.mark.parametrize(
    ("extra", "said"),
    [(["--seeds", "0"], "--seeds must be at least 1"), (["--slice", "-1"], "--slice must not be negative")],
)
def test_numbers_that_cannot_be_meant(extra, said, capsys):
    assert main([*WORDS, *extra]) == 2
    assert said in capsys.readouterr().err
