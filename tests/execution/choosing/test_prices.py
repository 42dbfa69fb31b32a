"""costs="measured": prices follow the stopwatch, are taken once, travel with state and copies, and decide shares."""

import copy

import pytest
import torch
from torch import nn

import regrow
from regrow import native
from regrow.errors import ConfigurationError, StateError, UnsupportedError
from regrow.execution.choosing import measure
from regrow.methods.sparse_momentum import method as sparse_momentum
from regrow.topology.redistribute import mean_momentum
from tests.execution.automatic import Stopwatch
from tests.execution.small import net, start, train
from tests.support.training import sgd

pytestmark = pytest.mark.skipif(not native.available(), reason="native kernels not built")
FIGURES = (("Conv2d(3, 8", 4.0), ("Conv2d(8, 12", 3.0), ("in_features=12", 2.0), ("in_features=16", 1.0))


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REGROW_CACHE", str(tmp_path / "cache"))


def priced(stopwatch, execution="masked", **options):
    model, optimizer, handle = start(execution, cost_power=1.0, costs="measured", **options)
    handle.network.prices.timer = stopwatch
    return model, optimizer, handle


def expected(handle, figures=(4.0, 3.0, 2.0, 1.0)):
    return [ms / int(mask.count_nonzero()) for ms, mask in zip(figures, handle.masks.values(), strict=True)]


@pytest.mark.parametrize("execution", ["masked", "sparse"])
def test_milliseconds_per_present_weight_are_taken_in_the_first_step_only(execution):
    stopwatch = Stopwatch(*FIGURES, runs=True)
    model, optimizer, handle = priced(stopwatch, execution)
    wanted = expected(handle)
    assert handle.network.prices.state() is None
    train(model, optimizer, 1)
    assert handle.network.costs == pytest.approx(wanted)
    assert len(stopwatch.asked) == 4
    assert all(" sparse " in key for key in stopwatch.asked)
    stopwatch.figures = []
    train(model, optimizer, 10, first=1)
    assert handle.updates == 1
    assert handle.network.costs == pytest.approx(wanted)
    assert len(stopwatch.asked) == 4
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_shares_are_momentum_per_price():
    model, optimizer, handle = priced(Stopwatch(*FIGURES))
    train(model, optimizer, 3)
    share = sparse_momentum(cost_power=1.0).redistribute.share
    for view, price in zip(handle.network.open_update(3).layers, expected(handle), strict=True):
        assert view.cost == pytest.approx(price)
        assert share(view) == pytest.approx(mean_momentum(view) / price)


def test_measuring_leaves_no_trace():
    """With candidates really run, weights, statistics and random numbers are those of a run with given prices."""
    runs, costs = [], "measured"
    for _ in range(2):
        model, optimizer, handle = start("masked", model=net(dropout=0.3), cost_power=1.0, costs=costs)
        if costs == "measured":
            handle.network.prices.timer = Stopwatch(*FIGURES, runs=True)
            costs = dict(zip(handle.masks, expected(handle), strict=True))
        losses = train(model, optimizer, 12)
        runs.append((losses, torch.rand(2).tolist(), [p.tolist() for p in model.state_dict().values()]))
    assert runs[0] == runs[1]


def test_a_timing_in_the_cache_counts_with_its_own_density(tmp_path):
    model, optimizer, handle = priced(Stopwatch(*FIGURES))
    train(model, optimizer, 1)
    first, refused = list(handle.network.costs), Stopwatch()
    model, optimizer, handle = priced(refused, density=0.305)
    train(model, optimizer, 1)
    assert refused.asked == []
    assert handle.network.costs == pytest.approx(first)


def test_a_saved_state_brings_its_prices_and_nothing_is_measured_again():
    model, optimizer, handle = priced(Stopwatch(*FIGURES))
    train(model, optimizer, 5)
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict(), handle.state_dict()))
    assert saved[2]["measured_costs"] == dict(zip(handle.masks, handle.network.costs, strict=True))
    losses = train(model, optimizer, 12, first=5)
    refused = Stopwatch(otherwise=77.0)
    other, its_optimizer, its_handle = priced(refused)
    for part, state in zip((other, its_optimizer, its_handle), saved, strict=True):
        part.load_state_dict(state)
    assert train(other, its_optimizer, 12, first=5) == losses
    assert refused.asked == []
    assert its_handle.network.costs == handle.network.costs
    assert all(torch.equal(a, b) for a, b in zip(handle.masks.values(), its_handle.masks.values(), strict=True))


def test_a_state_from_before_the_first_step_measures():
    *_, fresh = priced(Stopwatch(*FIGURES))
    model, optimizer, handle = priced(Stopwatch(*FIGURES))
    handle.load_state_dict(fresh.state_dict())
    train(model, optimizer, 1)
    assert handle.network.costs == pytest.approx(expected(handle))


def test_states_that_do_not_fit_are_refused():
    model, optimizer, given = start("masked", cost_power=1.0, costs=dict.fromkeys(("0", "4", "8", "10"), 1.0))
    train(model, optimizer, 1)
    *_, handle = priced(Stopwatch(*FIGURES))
    with pytest.raises(StateError, match="had no measured costs"):
        handle.load_state_dict(given.state_dict())
    odd = {**given.state_dict(), "measured_costs": {"0": 1.0}}
    with pytest.raises(StateError, match="costs do not fit layer 10"):
        handle.load_state_dict(odd)


@pytest.mark.parametrize("steps", [0, 3])
def test_copies_keep_prices_or_measure_their_own(steps):
    model, optimizer, handle = priced(Stopwatch(*FIGURES))
    train(model, optimizer, steps)
    copied, its_optimizer = copy.deepcopy((model, optimizer))
    twin = regrow.handle_of(its_optimizer)
    assert twin.model is copied
    twin.network.prices.timer = Stopwatch(*FIGURES)
    train(copied, its_optimizer, 2, first=steps)
    assert len(twin.network.prices.timer.asked) == (0 if steps else 4)
    if steps:
        assert twin.network.costs == handle.network.costs
    else:
        assert not handle.network.prices.known


def test_calls_of_one_weight_add_up():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.head = nn.Linear(12, 12), nn.Linear(12, 12), nn.Linear(12, 5)
            self.second.weight = self.first.weight

        def forward(self, x):
            return self.head(self.second(self.first(self.first(x))))

    model = Twice()
    optimizer = sgd(model)
    handle = regrow.sparsify(model, optimizer, density=0.5, steps=40, update_every=10, costs="measured")
    handle.network.prices.timer = Stopwatch(otherwise=6.0)
    nn.functional.cross_entropy(model(torch.randn(7, 12)), torch.randint(5, (7,))).backward()
    optimizer.step()
    wanted = [3 * 6.0, 6.0]
    assert handle.network.costs == pytest.approx(expected(handle, wanted))


def test_the_plan_shows_them_once_they_are_known():
    model, optimizer, handle = priced(Stopwatch(*FIGURES))
    assert "ns/weight" not in str(handle.plan())
    train(model, optimizer, 1)
    rows = {row.layer: row for row in handle.plan()}
    assert rows["0"].cost == handle.network.costs[0]
    assert rows["0.bias"].cost is None
    text = str(handle.plan())
    assert f"{1e6 * handle.network.costs[0]:,.0f}" in text
    assert "timed at the start" in text


def test_layers_that_cannot_run_on_the_kernels_are_named(monkeypatch):
    model = nn.Sequential(nn.Linear(4, 4), nn.Bilinear(4, 4, 2))
    with pytest.raises(UnsupportedError, match=r"on which 1 cannot run: .*Bilinear does not compute as"):
        regrow.sparsify(model, sgd(model), density=0.5, steps=40, cost_power=1.0, costs="measured")
    assert regrow.handle_of(sgd(model)) is None
    monkeypatch.setattr(native, "available", lambda: False)
    model = nn.Linear(4, 4)
    with pytest.raises(UnsupportedError, match=r"kernels are not built.*costs=<example input>"):
        regrow.sparsify(model, sgd(model), density=0.5, steps=40, cost_power=1.0, costs="measured")


def test_an_unknown_source_of_costs():
    model = nn.Linear(4, 4)
    with pytest.raises(ConfigurationError, match="unknown costs 'mesured': did you mean 'measured'"):
        regrow.sparsify(model, sgd(model), density=0.5, steps=40, cost_power=1.0, costs="mesured")


def test_a_layer_without_a_part_in_the_step():
    model = nn.Sequential(nn.Linear(12, 12), nn.Linear(12, 12))
    optimizer = sgd(model)
    handle = regrow.sparsify(model, optimizer, density=0.5, steps=40, update_every=10, costs="measured")
    handle.network.prices.timer = Stopwatch()
    model[0](torch.randn(7, 12)).sum().backward()
    with pytest.raises(UnsupportedError, match="layer 1 had no part in the first step"):
        optimizer.step()


def test_no_topology_update_without_prices():
    model = nn.Sequential(nn.Linear(12, 12), nn.Linear(12, 5))
    optimizer = sgd(model)
    regrow.sparsify(model, optimizer, density=0.5, steps=40, update_every=2, costs="measured")
    model.eval()  # no pass of this model is a training pass
    model(torch.randn(7, 12)).sum().backward()
    optimizer.step()
    with pytest.raises(StateError, match="saw no training pass"):
        optimizer.step()


def test_detached_handles_listen_no_more():
    model, _, handle = priced(Stopwatch())
    handle.detach()
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_the_real_stopwatch_is_the_default(monkeypatch):
    monkeypatch.setattr(measure, "milliseconds", Stopwatch(*FIGURES))
    model, optimizer, handle = start("masked", cost_power=1.0, costs="measured")
    train(model, optimizer, 1)
    assert handle.network.costs == pytest.approx(expected(handle))
