"""Steps and images together with all the time they took, by clocks of our own."""

from types import SimpleNamespace

from regrow.training.lap import Lap


class Clock:
    now = 50.0

    def __call__(self):
        return self.now


def test_a_row_holds_what_passed_since_the_last_row():
    clock, processor = Clock(), Clock()
    lap = Lap(None, clock, processor)
    clock.now, processor.now = 53.0, 52.0
    for images in (10, 10, 4):
        lap.count(images)
    assert lap.row() == {"seconds": 3.0, "processor_seconds": 2.0, "steps": 3, "images": 24}
    assert lap.row() == {"seconds": 0.0, "processor_seconds": 0.0, "steps": 0, "images": 0}


def test_traffic_is_told_per_step():
    traffic = SimpleNamespace(sent=1000, dense=5000)
    lap = Lap(traffic)
    for sent in (30, 50):
        traffic.sent += sent
        traffic.dense += 200
        lap.count(10)
    row = lap.row()
    assert (row["bytes_per_step"], row["bytes_per_step_dense"]) == (40, 200)
    traffic.sent, traffic.dense = traffic.sent + 60, traffic.dense + 200
    lap.count(10)
    row = lap.row()
    assert (row["bytes_per_step"], row["bytes_per_step_dense"]) == (60, 200)


def test_a_restart_forgets():
    clock = Clock()
    lap = Lap(None, clock, clock)
    lap.count(10)
    clock.now += 7.0
    lap.restart()
    clock.now += 1.0
    lap.count(5)
    assert lap.row() == {"seconds": 1.0, "processor_seconds": 1.0, "steps": 1, "images": 5}
