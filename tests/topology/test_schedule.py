"""When updates happen, and how rates and densities move."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regrow.errors import ConfigurationError
from regrow.topology.schedule import (
    Clock,
    When,
    constant,
    cosine,
    cubic,
    in_rounds,
    linear,
    require_steps,
    steps,
    updates_for_rounds,
)
from tests.support.examples import examples


def moments(clock, until):
    return [t for t in range(until + 1) if clock.due(t)]


def test_after_each_interval_but_not_after_the_last_step():
    assert moments(Clock(When(), 5, 20), 25) == [5, 10, 15]
    assert moments(Clock(When(), 5, 21), 25) == [5, 10, 15, 20]
    assert moments(Clock(When(), 5, None), 25) == [5, 10, 15, 20, 25]


def test_instead_of_steps_from_the_first_until_the_end():
    assert moments(Clock(When(phase="instead", until=0.75), 5, 20), 25) == [0, 5, 10]
    assert moments(Clock(When(phase="instead", until=0.75), 5, 24), 25) == [0, 5, 10, 15]


@pytest.mark.parametrize("total", [100, 200, 7000])
def test_the_end_is_no_update_where_its_product_is_not_exact(total):
    assert 0.55 * total > total * 55 // 100
    clock = Clock(When(phase="instead", until=0.55), 5, total)
    assert clock.last_due() == total * 55 // 100 - 5


def test_begin_until_and_stretch():
    assert moments(Clock(When(begin=0.3, until=0.7), 10, 100), 100) == [30, 40, 50, 60, 70]
    assert moments(Clock(When(stretch=((0.3, 2), (0.6, 4))), 10, 100), 100) == [10, 20, 40, 80]


@examples("schedule")
@given(st.integers(1, 12), st.one_of(st.none(), st.integers(1, 60)), st.sampled_from(["after", "instead"]),
       st.sampled_from([0.4, 0.75, 1.0]), st.sampled_from([(), ((0.25, 2), (0.5, 4))]))  # fmt: skip
def test_the_next_moment_is_the_first_that_is_due(every, total, phase, until, stretch):
    clock = Clock(When(phase=phase, until=until, stretch=stretch), every, total)
    due = moments(clock, 80)
    for t in range(70):
        following = next((moment for moment in due if moment >= t), None)
        if following is not None or total is not None:
            assert clock.next_due(t) == following


def test_intervals_are_shorter_where_epochs_are_too_few():
    assert When("epoch", at_least=20).interval(54_000, epoch=540) == 540
    assert When("epoch", at_least=20).interval(540, epoch=540) == 27
    assert When("epoch", at_least=20).interval(7, epoch=540) == 1
    assert When("epoch", at_least=20, epochs=3).interval(None, epoch=540) == 1620
    assert When(5, at_least=20).interval(40, epoch=540) == 5


@examples("schedule")
@given(
    st.sampled_from([0.0, 0.1, 0.4, 0.5]), st.sampled_from([0.6, 0.7, 0.8, 0.95]), st.integers(1, 6), st.integers(1, 7)
)
def test_every_round_has_an_update_of_its_own(begin, until, rounds, factor):
    number = updates_for_rounds(begin, until, rounds)
    total = number * factor
    clock = Clock(When("epoch"), When("epoch", at_least=number).interval(total, epoch=10**6), total)
    curve = in_rounds(0.01, begin, until, rounds)
    seen = [curve(clock.progress(t)) for t in moments(clock, total)]
    assert len({round(density, 9) for density in seen if density < 1}) == rounds
    assert seen[-1] == 0.01


def test_progress_and_interval():
    clock = Clock(When(stretch=((0.5, 3),)), 4, 20)
    assert [clock.progress(t) for t in (0, 5, 20, 30)] == [0.0, 0.25, 1.0, 1.0]
    assert [clock.interval(t) for t in (0, 9, 10, 19)] == [4, 4, 12, 12]
    assert Clock(When(), 4, None).progress(100) == 0.0


@pytest.mark.parametrize(
    ("curve", "at"),
    [
        (constant(0.3), lambda t: 0.3),
        (cosine(0.4, 0.1), lambda t: 0.1 + 0.15 * (1 + math.cos(math.pi * t))),
        (cosine(0.4, until=0.5), lambda t: 0.2 * (1 + math.cos(math.pi * min(1, 2 * t)))),
        (linear(0.4), lambda t: 0.4 * (1 - t)),
        (linear(0.4, 0.2, 0.5), lambda t: 0.4 - 0.2 * min(1, 2 * t)),
        (cubic(1.0, 0.1, 0.2, 0.7), lambda t: 0.1 + 0.9 * (1 - min(1, max(0, (t - 0.2) / 0.5))) ** 3),
        (steps((3, 2, 1), (0.25, 0.75)), lambda t: 3 - (t >= 0.25) - (t >= 0.75)),
    ],
)
def test_curves(curve, at):
    for t in (0.0, 0.2, 0.25, 0.5, 0.7, 0.75, 1.0):
        assert curve(t) == pytest.approx(at(t))


def test_a_missing_number_of_steps_is_named():
    assert require_steps("rigl", 5) == 5
    with pytest.raises(ConfigurationError, match=r"'rigl'.*steps=<number of optimizer steps>"):
        require_steps("rigl", None)
