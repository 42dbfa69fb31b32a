from dataclasses import replace

import pytest
import torch
from torch import nn

import regrow
from regrow.analysis import flops
from regrow.analysis.sizes import EmptyChannels
from regrow.report.history import history
from regrow.report.reading import read_run
from regrow.report.snapshot import LayerRow, take
from regrow.report.work import estimates, training_work, window_ranges
from tests.report.conftest import with_method


@pytest.mark.parametrize(
    ("method", "every"),
    [("sparse-momentum", 30), ("sparse-momentum", 90), ("rigl", 10), ("set", 10), ("static", 10), ("snfs-erk", 30)],
)
def test_windows_are_the_steps_in_which_the_handle_asks_for_missing_gradients(method, every):
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.8)
    handle = regrow.sparsify(model, optimizer, method, density=0.5, steps=100, update_every=every)
    asked = []
    expected = {step for first, last in window_ranges(handle, 100) for step in range(first, last)}
    for step in range(100):
        if handle.needs_missing_gradients:
            asked.append(step)
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert sorted(expected) == asked
    assert bool(asked) == (method not in ("set", "static"))


def work_of(folder):
    files = read_run(folder)
    return files, training_work(take(files), history(files.journal), files.step)


def test_fixed_masks_cost_three_sparse_products(train):
    _, work = work_of(train(with_method("static", epochs=2)))
    assert work.dense_forward == 2 * 266_200
    assert work.step == pytest.approx(flops.static_step(work.forward))
    assert work.fraction == pytest.approx(0.1, abs=1e-4)
    assert work.window_steps == 0


def test_dense_training_costs_all(train):
    assert work_of(train(with_method("dense", 1.0, epochs=2)))[1].fraction == 1.0


def test_sparse_momentum_pays_for_its_windows(finished):
    files, work = work_of(finished)
    assert (work.steps, work.window_steps) == (24, 18)
    # LeNet-300-100 uses each weight once: f_S is the density whatever the masks.
    assert work.forward == pytest.approx(0.05 * work.dense_forward, rel=1e-4)
    assert work.step == pytest.approx(flops.windowed_step(work.forward, work.dense_forward, 18, 24))
    assert work.window_share == 0.75
    assert files.journal


def test_gradual_pruning_is_a_mean_over_steps(train):
    files, work = work_of(train(with_method("gradual-pruning")))
    borders = [0, *(record.step for record in files.journal), 24]
    densities = [1.0, *(record.density for record in files.journal)]
    forwards = [d for d, a, b in zip(densities, borders, borders[1:], strict=False) for _ in range(b - a)]
    assert len(forwards) == 24
    assert work.fraction == pytest.approx(flops.gradual_step(forwards) / 3, rel=1e-3)


@pytest.mark.filterwarnings("ignore:masks will never change")
def test_shadow_weights_receive_gradients_beyond_the_mask(train):
    narrow = work_of(train(with_method("top-kast", epochs=2)))[1]
    assert 0.1 < narrow.fraction < (2 * 0.1 + 1) / 3
    full = work_of(train(with_method("sr-ste", 0.5, epochs=2)))[1]
    assert full.fraction == pytest.approx((2 * 0.5 + 1) / 3, rel=1e-3)
    assert full.window_share == 1.0


def row(name, group, density, given, macs=1000):
    return LayerRow(name, group, (10, 10), 100, round(100 * density), True, "", macs, EmptyChannels(0, 0), given)


def test_estimate_keeps_convolutions_shortcuts_and_linear_layers_apart():
    rows = [row("a", "conv", 0.5, 0.4), row("b", "conv", 0.1, 1.0, 3000), row("c", "linear", 0.2, 0.5)]
    first, second = estimates([*rows, row("d", "shortcut", 1.0, None)])
    assert (first.group, first.layers, first.dense) == ("conv", 2, 4000)
    assert first.weights == pytest.approx(500 + 300)
    assert first.activations == pytest.approx(400 + 3000)
    assert first.both == pytest.approx(200 + 300)
    assert (second.group, second.both) == ("linear", pytest.approx(100))
    assert estimates([replace(rows[0], input_density=None)]) == []
