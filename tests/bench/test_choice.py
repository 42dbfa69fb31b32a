"""`bench auto`: which mixes stand beside a choice, and rows that say what they measured; no timing is asserted."""

import json

import pytest
import torch
from torch import nn

from regrow import native
from regrow.bench import arms, choice, masks
from regrow.bench.choice import AGAIN, AUTO, DENSE, SPARSE
from regrow.cli.main import main
from regrow.execution.choosing import measure
from tests.execution.automatic import DENSE_WINS, SPARSE_WINS, Stopwatch

pytestmark = pytest.mark.skipif(not native.available(), reason="native kernels not built")
ORDER = ("a", "b", "c", "d", "e")


def of(text):
    return frozenset(text)


def test_mixes_turn_one_chain_or_move_one_of_its_ends():
    found = choice.mixes(ORDER, of("bcd"))
    assert set(found.values()) == {of("abcd"), of(""), of("cd"), of("bc"), of("bcde")}
    assert found["b-d dense"] == of("")


@pytest.mark.parametrize("sparse", ["", "abcde"])
def test_mixes_of_one_chain(sparse):
    found = set(choice.mixes(ORDER, of(sparse)).values())
    assert found == {of(sparse) ^ of(ORDER), of(sparse) ^ of("a"), of(sparse) ^ of("e")}


def test_every_assignment_is_measured_once_under_its_first_name():
    found = choice.assignments(ORDER, of("abcde"), of("abcd"))
    assert len(set(found.values())) == len(found)
    assert found[AUTO] == of("abcde")
    assert found[DENSE] == of("")
    assert found[AGAIN] == of("abcd")
    assert SPARSE not in found


def tiny():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 1), nn.Flatten(), nn.Linear(32, 5)
    )


def batch():
    return torch.randn(9, 3, 6, 6), torch.randint(5, (9,))


@pytest.mark.parametrize(("figures", "count"), [(SPARSE_WINS, 3), (DENSE_WINS, 0)])
def test_a_row_says_what_auto_chose_and_what_stood_beside_it(figures, count, monkeypatch):
    monkeypatch.setattr(measure, "milliseconds", Stopwatch(*figures))
    row = choice.measure("tiny", tiny(), batch(), masks.uniform(tiny(), 0.3), 1)
    assert len(row.auto_sparse) == count
    assert row.layers == 3
    assert row.differs == ()
    assert row.milliseconds[row.best] == row.best_ms == min(row.milliseconds.values())
    assert row.share_of_best == row.best_ms / row.auto_ms <= 1
    assert row.share_of_dense == pytest.approx(row.dense_ms / row.auto_ms)
    # Everything else, and the two ends of the one chain.
    assert len(row.milliseconds) == 4


def test_decisions_do_not_share_timings(monkeypatch):
    stopwatch = Stopwatch(*SPARSE_WINS)
    monkeypatch.setattr(measure, "milliseconds", stopwatch)
    choice.measure("tiny", tiny(), batch(), masks.uniform(tiny(), 0.3), 1)
    modules = [name for name in stopwatch.asked if "whole model" not in name]
    assert len(modules) == 2 * len(set(modules))


def test_masks_after_updates_keep_their_number_and_move():
    drawn = masks.uniform(tiny(), 0.3)
    moved = arms.after_updates(tiny(), *batch(), drawn)
    assert moved.source == "after 2 updates"
    assert sum(int(m.sum()) for m in moved.masks.values()) == sum(int(m.sum()) for m in drawn.masks.values())
    assert any(not torch.equal(moved.masks[name], mask) for name, mask in drawn.masks.items())


def test_command(tmp_path, capsys):
    file = tmp_path / "rows.json"
    arguments = [
        "--model",
        "lenet300",
        "--batch",
        "8",
        "--density",
        "0.1",
        "--updates",
        "--repeats",
        "1",
        "--threads",
        "1",
    ]
    assert main(["bench", "auto", *arguments, "--json", str(file)]) == 0
    rows = json.loads(file.read_text())["rows"]
    assert [row["masks"] for row in rows] == ["uniform", "after 2 updates"]
    assert all(choice.line(row) in capsys.readouterr().out for row in rows[:1])
