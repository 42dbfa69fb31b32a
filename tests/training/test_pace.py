"""Images per second without start-up and pauses, by a clock of our own."""

from regrow.training.pace import WINDOW, Pace


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def paced(*seconds, images=10):
    clock = Clock()
    pace = Pace(clock)
    for step in seconds:
        clock.now += step
        pace.count(images)
    return clock, pace


def test_the_first_step_counts_only_alone():
    _, pace = paced()
    assert pace.recent is None
    assert pace.row() is None
    _, pace = paced(4.0)
    assert pace.recent == pace.row().rate == 2.5
    _, pace = paced(4.0, 0.5, 0.5)
    assert pace.recent == 20
    row = pace.row()
    assert (row.seconds, row.images, row.rate) == (1.0, 20, 20)


def test_a_row_holds_the_steps_since_the_last_row():
    clock, pace = paced(9.0, 1.0)
    assert pace.row().rate == 10
    assert pace.row() is None
    clock.now += 0.5
    pace.count(10)
    assert pace.row().rate == 20


def test_pauses_do_not_count():
    clock, pace = paced(1.0, 1.0)
    clock.now += 1000.0
    pace.skip()
    clock.now += 1.0
    pace.count(10)
    assert pace.recent == pace.row().rate == 10


def test_the_window_forgets():
    _, pace = paced(1.0, *[1.0] * 20, *[0.125] * int(8 * WINDOW))
    assert pace.recent == 80
    _, pace = paced(1.0, 0.1, 50.0)
    assert pace.recent == 0.2, "the last step always counts"
