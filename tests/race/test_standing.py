"""What rows of a race say."""

import pytest

from regrow.race.page import cells_of, markdown
from regrow.race.standing import shown_levels, standings, unbeaten


def row(setting, seed, step, seconds, error, **rest):
    return {
        "setting": setting, "seed": seed, "step": step, "epoch": step / 10, "seconds": seconds, "macs": 100 * seconds, "error": error,
        "macs_share": 0.5, "density": 0.1, "updates": 1, **rest,
    }  # fmt: skip


ROWS = [
    row("dense", 0, 5, 10.0, 40.0), row("dense", 0, 10, 20.0, 20.0),
    row("dense", 1, 5, 10.0, 30.0), row("dense", 1, 10, 22.0, 22.0),
    row("a", 0, 5, 2.0, 41.0), row("a", 0, 10, 4.0, 24.0),
    row("b", 0, 5, 3.0, 50.0), row("b", 0, 10, 6.0, 26.0),
    row("c", 0, 5, 3.0, None, diverged="loss is nan"),
]  # fmt: skip


def test_means_over_seeds_times_to_levels_and_test_errors():
    lines = {line.setting: line for line in standings(ROWS, {("dense", 0): 21.0, ("dense", 1): 25.0})}
    dense = lines["dense"]
    assert (dense.seeds, dense.error, dense.seconds, dense.tested) == (2, 23.0, 21.0, True)
    assert dense.spread == pytest.approx(2.0)
    assert dense.reached[25] == 21.0
    assert dense.reached[40] == 10.0
    assert (lines["a"].error, lines["a"].tested) == (24.0, False)
    assert 20 not in lines["a"].reached
    assert lines["c"].diverged == 1
    assert lines["c"].error is None


def test_who_is_beaten_by_nobody():
    assert unbeaten(standings(ROWS, {})) == ["dense", "a"]


def test_levels_lie_between_the_worst_and_the_best():
    assert shown_levels(ROWS) == [40, 35, 30, 25, 20]
    assert shown_levels([]) == []


def test_the_table_compares_with_dense():
    head, body = cells_of(standings(ROWS, {}), ROWS)
    assert len({len(line) for line in [head, *body]}) == 1
    found = dict(zip(head, body[1], strict=True))
    assert found["setting"] == "a"
    assert found["of dense"] == f"{4 / 21:.3f}"
    assert found["unbeaten"] == "yes"
    assert found["s to 25%"] == "4.0"
    assert markdown(head, body).count("\n") == 6
