"""Budgets in compute, from the one line to the journal."""

import copy

import pytest
import torch
from torch import nn

import regrow
from regrow import native
from regrow.errors import ConfigurationError, StateError
from tests.execution.automatic import Stopwatch
from tests.execution.small import start
from tests.execution.small import train as train_small
from tests.support.training import sgd

EXAMPLE = torch.zeros(1, 3, 12, 12)
FIGURES = (("Conv2d(3, 8", 4.0), ("Conv2d(8, 12", 3.0), ("in_features=12", 2.0), ("in_features=16", 1.0))


def convolutions(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(288, 5),
    )


def begin(method="sparse-momentum", seed=0, **arguments):
    model = convolutions(seed)
    optimizer = sgd(model)
    given = {"density": 0.3, "macs": 0.1, "costs": EXAMPLE, "steps": 40, "update_every": 4, **arguments}
    return model, optimizer, regrow.sparsify(model, optimizer, method, **given)


def train(model, optimizer, steps, first=0, each=lambda: None):
    for step in range(first, steps):
        source = torch.Generator().manual_seed(step)
        optimizer.zero_grad()
        images, labels = torch.randn(8, 3, 12, 12, generator=source), torch.randint(5, (8,), generator=source)
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        each()


def share(handle):
    return handle.plan(EXAMPLE).macs_share


@pytest.mark.parametrize("method", ["sparse-momentum", "snfs-erk", "dsr", "set", "rigl", "static", "deep-r", "mest"])
@pytest.mark.parametrize("distribution", ["uniform", "erk"])
def test_both_budgets_hold_at_the_start_and_after_every_update(method, distribution):
    model, optimizer, handle = begin(method, distribution=distribution)
    weights = handle.nonzeros
    assert weights == round(0.3 * handle.numel)

    def check():
        assert handle.nonzeros == weights
        assert share(handle) <= 0.1 * (1 + 1e-9)

    check()
    train(model, optimizer, 40, each=check)
    assert all(record.compute <= 0.1 * (1 + 1e-9) and record.budget == weights for record in handle.journal)


def test_the_limit_binds_and_is_nearly_used_and_the_price_is_journalled():
    model, optimizer, handle = begin(macs=0.2)
    *_, free = begin(macs=None)
    assert share(free) > 0.25
    assert 0.19 < share(handle) <= 0.2
    train(model, optimizer, 20)
    assert any(record.price is not None and record.price > 0 for record in handle.journal)
    assert share(handle) > 0.19


def test_none_is_the_paper():
    runs = []
    for macs in (None, 1.0):
        model, optimizer, handle = begin(macs=macs)
        train(model, optimizer, 20)
        runs.append((model, handle))
    assert all(torch.equal(a, b) for a, b in zip(runs[0][0].parameters(), runs[1][0].parameters(), strict=True))
    assert all(record.compute is None for record in runs[0][1].journal)


def test_a_resumed_run_is_the_uninterrupted_one():
    model, optimizer, handle = begin()
    train(model, optimizer, 10)
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict(), handle.state_dict()))
    train(model, optimizer, 30, first=10)
    other, its_optimizer, its_handle = begin(seed=1, macs=0.1)
    for part, state in zip((other, its_optimizer, its_handle), saved, strict=True):
        part.load_state_dict(state)
    train(other, its_optimizer, 30, first=10)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
    assert [r.as_dict() for r in handle.journal] == [r.as_dict() for r in its_handle.journal]
    _, _kept, larger = begin(macs=0.2)
    with pytest.raises(StateError, match=r"macs = 0.1, this one 0.2"):
        larger.load_state_dict(saved[2])


def test_a_frozen_layer_has_spent_its_part():
    model, optimizer, handle = begin()
    model[0].weight.requires_grad_(False)
    frozen = handle.masks["0"].clone()
    train(model, optimizer, 12)
    assert handle.updates > 0
    assert torch.equal(handle.masks["0"], frozen)
    assert share(handle) <= 0.1 * (1 + 1e-9)


def test_the_plan_shows_the_budget():
    *_, handle = begin()
    assert "at most macs=0.1" in str(handle.plan(EXAMPLE))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"macs": 0.0}, r"macs must lie in \(0, 1\]"),
        ({"macs": True}, r"macs must lie in \(0, 1\]"),
        ({"macs": 0.001}, r"cannot keep macs=0.001.*Nearest that fit: macs=0\.\d+"),
        ({"macs": 0.1, "milliseconds": 0.1}, "give one of them"),
        ({"cost_power": 1.0}, "cost_power fixes the price"),
        ({"costs": None}, "pass costs=<example input>"),
        ({"costs": "measured"}, "pass costs=<example input>"),
        ({"macs": None, "milliseconds": 0.1}, "pass costs='measured'"),
        ({"global_growth": True}, "grows over the whole network"),
        ({"method": "granet"}, "moves its number of weights"),
        ({"method": "snip", "calibration": lambda: None}, "first weights over the whole network"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_nothing_changes(arguments, words):
    model = convolutions()
    before = copy.deepcopy(model.state_dict())
    optimizer = sgd(model)
    if "calibration" in arguments:
        arguments = {**arguments, "calibration": lambda: model(torch.randn(4, 3, 12, 12)).square().mean()}
    given = {"density": 0.3, "macs": 0.02, "costs": EXAMPLE, "steps": 40, "update_every": 4, **arguments}
    with pytest.raises(ConfigurationError, match=words):
        regrow.sparsify(model, optimizer, **given)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


@pytest.mark.skipif(not native.available(), reason="native kernels not built")
def test_milliseconds_bind_from_the_first_step_on(tmp_path, monkeypatch):
    monkeypatch.setenv("REGROW_CACHE", str(tmp_path))
    model, optimizer, handle = start("masked", costs="measured", milliseconds=0.2)
    # 10 ms on kernels with the first masks, 48 dense: the limit is 9.6.
    handle.network.prices.timer = Stopwatch((" dense", 12.0), *FIGURES)
    weights, first = handle.nonzeros, {name: mask.clone() for name, mask in handle.masks.items()}
    assert handle.network.allowance.share() is None
    train_small(model, optimizer, 1)
    assert handle.nonzeros == weights
    assert handle.network.allowance.share() <= 0.2 * (1 + 1e-9)
    assert any(not torch.equal(first[name], mask) for name, mask in handle.masks.items())
    assert handle.journal == []
    assert all(bool((p.parameter[~p.mask] == 0).all()) for p in handle.parameters)
    saved = handle.state_dict()
    train_small(model, optimizer, 12, first=1)
    assert handle.journal
    assert all(record.compute <= 0.2 * (1 + 1e-9) and record.budget == weights for record in handle.journal)
    *_, again = start("masked", costs="measured", milliseconds=0.2)
    again.load_state_dict(saved)
    assert again.network.allowance.limit == handle.network.allowance.limit
