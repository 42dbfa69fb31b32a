"""Costs from timings: cache, windows, slopes, break-even."""

import pytest
import torch
from torch import nn

from regrow import native
from regrow.execution.choosing import measure
from regrow.execution.choosing.measure import Bench, ModuleTimes, milliseconds
from regrow.execution.choosing.record import Call
from regrow.execution.choosing.timings import Timings
from tests.execution.automatic import Stopwatch

pytestmark = pytest.mark.skipif(not native.available(), reason="native kernels not built")
CALL = Call("fc", (6, 12), torch.float32, True, None)


@pytest.fixture
def module():
    return nn.Linear(12, 8)


def bench(tmp_path, timer, share=0.0):
    return Bench(Timings(tmp_path / "timings.json"), timer, False, share)


def mask(density):
    flat = torch.zeros(96, dtype=torch.bool)
    flat[: round(96 * density)] = True
    return flat.view(8, 12)


def test_a_layer_costs_what_was_measured(tmp_path, module):
    figures = ((" dense", 10.0), ("random", 6.0), (" sparse", 2.0), ("enter", 0.5))
    cost = bench(tmp_path, Stopwatch(*figures)).layer(CALL, module, mask(1 / 16), None)
    slope = 4.0 / (0.25 - 1 / 16)
    assert cost == ModuleTimes("fc", "layer", 10.0, 2.0, 0.5, 0.0, 1 / 16, pytest.approx(slope))
    assert cost.break_even == pytest.approx(1 / 16 + 8.0 / slope)
    assert cost.stage(0.25).chwn == pytest.approx(6.0)


def test_windows_weigh_in_with_their_share(tmp_path, module):
    figures = ((" dense", 10.0), (" sparse", 2.0), ("window", 6.0))
    cost = bench(tmp_path, Stopwatch(*figures), share=0.25).layer(CALL, module, mask(0.5), None)
    assert cost.chwn == pytest.approx(3.0)
    assert cost.window == pytest.approx(1.0)


def test_cached_times_are_not_measured_again_and_move_with_density(tmp_path, module):
    stopwatch = Stopwatch((" dense", 10.0), ("random", 6.0), (" sparse", 2.0))
    first = bench(tmp_path, stopwatch)
    first.layer(CALL, module, mask(6 / 96), None)
    first.timings.save()
    asked = len(stopwatch.asked)
    cost = bench(tmp_path, stopwatch).layer(CALL, module, mask(6 / 96), None)
    assert len(stopwatch.asked) == asked
    assert cost.chwn == 2.0
    bench(tmp_path, stopwatch).layer(CALL, module, mask(0.5), None)
    assert sum("dense" in key for key in stopwatch.asked) == 1
    assert len(stopwatch.asked) > asked


@pytest.mark.parametrize(
    "change",
    [
        lambda m, c: (nn.Linear(12, 8, bias=False), c),
        lambda m, c: (m, Call("fc", (7, 12), c.dtype, True, None)),
        lambda m, c: (m, Call("fc", c.shape, c.dtype, False, None)),
        lambda m, c: (m, Call("fc", c.shape, c.dtype, True, torch.bfloat16)),
        lambda m, c: (m.requires_grad_(False), c),
    ],
)
def test_what_decides_the_time_is_part_of_the_key(tmp_path, module, change):
    stopwatch = Stopwatch()
    bench(tmp_path, stopwatch).layer(CALL, module, mask(0.5), None)
    before = set(stopwatch.asked)
    other, call = change(module, CALL)
    bench(tmp_path, stopwatch).layer(call, other, mask(0.5), None)
    assert not {key for key in before if "dense" in key} & set(stopwatch.asked[len(before) :])


def test_everything_measured_really_runs(tmp_path):
    watch = Stopwatch(runs=True)
    b = Bench(Timings(tmp_path / "t"), watch, True, 0.5)
    image = Call("x", (5, 4, 6, 6), torch.float32, True, None)
    conv = nn.Conv2d(4, 8, 3)
    reach = torch.ones_like(conv.weight, dtype=torch.bool)
    b.layer(image, conv, torch.rand(conv.weight.shape) < 0.3, reach)
    b.layer(Call("y", (2, 3, 12), torch.float32, False, torch.bfloat16), nn.Linear(12, 8), mask(0.5), None)
    for module in (nn.BatchNorm2d(4), nn.MaxPool2d(2), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(1)):
        b.follower(image, module)
    b.ordinary(image, nn.ConvTranspose2d(4, 4, 1))
    assert len(watch.asked) > 15
    assert conv.weight.grad is None


def test_break_even_at_the_ends():
    assert ModuleTimes("a", "layer", 5.0, 1.0).break_even == 1.0
    assert ModuleTimes("a", "layer", 1.0, 5.0).break_even == 0.0
    assert ModuleTimes("a", "layer", 1.0, 5.0, slope=1.0).break_even == 0.0
    assert ModuleTimes("a", "ordinary", 1.0).break_even is None


def test_the_stopwatch_runs_everything_and_returns_times():
    counts = {"a": 0, "b": 0}

    def count(name):
        counts[name] += 1

    ms = milliseconds({name: lambda name=name: count(name) for name in counts})
    assert set(ms) == {"a", "b"}
    assert all(value >= 0 for value in ms.values())
    assert counts["a"] == counts["b"] >= 2


def test_what_is_slow_runs_once(monkeypatch):
    now, runs = [0.0], []
    monkeypatch.setattr(measure.time, "perf_counter", lambda: now[0])

    def take(name, seconds):
        runs.append(name)
        now[0] += seconds

    ms = milliseconds({"slow": lambda: take("slow", 0.5), "quick": lambda: take("quick", 0.1)})
    assert ms == {"slow": pytest.approx(500.0), "quick": pytest.approx(100.0)}
    assert runs.count("slow") == 1
    assert runs.count("quick") >= 3
