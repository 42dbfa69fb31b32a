"""Compact storage: the same training as with dense storage, to the last bit, in memory for present weights only."""

import warnings
from contextlib import nullcontext

import pytest
import torch
from torch import nn

import regrow
from regrow import stepping, testing
from regrow.methods import METHODS, build
from tests.support.compact import OPTIMIZERS, STEPS, WITH_DENSE_PARTS, Run, assert_same, batch


@pytest.mark.parametrize("method", sorted(set(METHODS) - WITH_DENSE_PARTS))
def test_every_method_trains_as_with_dense_storage(method):
    density = None if build(method, {}).free_of_density else 0.2
    every = 1 if method in ("dsr", "deep-r") else 3
    compact, dense = (
        Run(storage, method, density=density, update_every=every).run() for storage in ("compact", "dense")
    )
    assert_same(compact, dense)
    assert all(s.parameter.shape == (s.support.nnz,) == s.parameter.grad.shape for s in compact.handle.parameters)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("method", ["sparse-momentum", "rigl", "set"])
def test_every_optimizer_trains_as_with_dense_storage(optimizer, method):
    assert_same(*(Run(storage, method, optimizer).run() for storage in ("compact", "dense")))


@pytest.mark.parametrize(
    "arguments",
    [
        {"window_tolerance": 0.0},
        {"window_stride": 2},
        {"momentum": "gradient"},
        {"native_step": False},
        {"growth": "gradient"},
        {"growth": "random"},
        {"growth": "momentum-neuron"},
        {"warmup": 0.9},
        {"grown_momentum": "zero", "just_pruned": "zero"},
        {"density": 0.7},
    ],
    ids=str,
)
@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_arguments_mean_the_same(arguments, optimizer):
    assert_same(*(Run(storage, optimizer=optimizer, **arguments).run() for storage in ("compact", "dense")))


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("sparse-momentum", {}),
        ("sparse-momentum", {"growth": "momentum-neuron"}),
        ("rigl", {}),
        ("granet", {}),
        ("snfs-erk", {}),
        ("srigl", {"ablation": 0.8}),
    ],
    ids=str,
)
def test_bands_do_not_change_the_choice(monkeypatch, method, options):
    monkeypatch.setattr("regrow.execution.kernels.gradient._BLOCK", 300)
    assert_same(*(Run(storage, method, **options).run() for storage in ("compact", "dense")))


@pytest.mark.parametrize(
    "options",
    [
        {"l1": 1e-2, "noise": 0.3},
        {"l1": 1e-2, "signs": "free"},
        {"l1": 1e-2, "temperature": (1e-3, 1e-5), "stages": (0.5,)},
        {"l1": 1e-2, "stop": 0.5},
    ],
    ids=str,
)
@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_deep_rewiring_walks_as_with_dense_storage(options, optimizer):
    one, two = (Run(storage, "deep-r", optimizer, update_every=1, **options).run() for storage in ("compact", "dense"))
    assert any(
        not torch.equal(one.handle.masks[name], mask) for name, mask in Run("dense", "deep-r").handle.masks.items()
    )
    assert_same(one, two)


def test_own_criteria_are_asked_band_by_band(monkeypatch):
    monkeypatch.setattr("regrow.execution.kernels.gradient._BLOCK", 300)

    @regrow.needs("momentum")
    def by_unit(layer):
        return layer.momentum.abs() / (
            1 + layer.weight.abs().flatten(1).sum(1).reshape(-1, *[1] * (layer.weight.dim() - 1))
        )

    assert_same(*(Run(storage, prune=by_unit, grow=by_unit).run() for storage in ("compact", "dense")))


def test_accumulated_clipped_and_scaled_gradients():
    def train(storage):
        run = Run(storage, "sparse-momentum", "Adam")
        while run.handle.step < STEPS:
            run.optimizer.zero_grad()
            for part in range(3):
                (run.loss(10 * run.handle.step + part) * 8).backward()
            for parameter in run.model.parameters():
                parameter.grad /= 8
            nn.utils.clip_grad_value_(run.model.parameters(), 0.05)
            run.optimizer.step()
        return run

    assert_same(train("compact"), train("dense"))


def test_clipping_by_norm_sees_present_weights_only():
    norms = {}
    for storage in ("compact", "dense"):
        run = Run(storage)
        run.loss(0).backward()
        norms[storage] = float(nn.utils.clip_grad_norm_(run.model.parameters(), 1.0))
    assert norms["compact"] == pytest.approx(norms["dense"], rel=1e-6)


def test_a_layer_used_twice_in_a_pass():
    def train(storage):
        torch.manual_seed(0)
        layer = nn.Linear(30, 30)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
        handle = regrow.sparsify(
            layer, optimizer, density=0.2, steps=12, update_every=3, execution="sparse", storage=storage
        )
        source = torch.Generator().manual_seed(1)
        for _ in range(12):
            optimizer.zero_grad()
            layer(layer(torch.randn(5, 30, generator=source)).relu()).square().mean().backward()
            optimizer.step()
        return layer.state_dict()["weight"], handle.masks

    (one, ours), (two, theirs) = train("compact"), train("dense")
    assert torch.equal(one, two)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_gradients_that_are_never_accumulated_are_no_evidence():
    def train(storage, looks):
        run = Run(storage, "rigl")
        while run.handle.step < STEPS:
            if looks:
                torch.autograd.grad(run.loss(99), [run.model[0].bias])
            run.step()
        return run

    looked, plain = train("compact", True), train("compact", False)
    assert_same(looked, plain)
    assert_same(looked, train("dense", False))


def test_loss_scaling_sees_an_overflow_at_missing_weights():
    def train(storage):
        torch.manual_seed(0)
        layer = nn.Linear(6, 3)
        layer.weight.data[:, 0] = 0
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        arguments = {"steps": 9, "update_every": 2, "start": "zeros", "execution": "sparse", "storage": storage}
        handle = regrow.sparsify(layer, optimizer, "rigl", **arguments)
        scaler, scales = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1000), []
        for number in range(5):
            optimizer.zero_grad()
            inputs = torch.ones(2, 6)
            inputs[:, 0] = 3e38 if number == 2 else 1.0
            scaler.scale(layer(inputs).square().mean()).backward()
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
        return scales, layer.state_dict()["weight"], handle.step

    ours, theirs = train("compact"), train("dense")
    assert ours[0] == theirs[0] == [4.0, 4.0, 2.0, 2.0, 2.0]
    assert torch.equal(ours[1], theirs[1])
    assert ours[2] == theirs[2] == 4


def test_autocast():
    def train(storage):
        run = Run(storage)
        while run.handle.step < STEPS:
            run.optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = run.loss(run.handle.step)
            loss.backward()
            run.optimizer.step()
        return run

    assert_same(train("compact"), train("dense"))


def test_a_graph_older_than_an_update_is_refused():
    run = Run(update_every=1)
    run.step()
    kept = run.loss(1)
    run.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        kept.backward()
    run.step()  # the failed pass leaves nothing behind


def test_compiled_models():
    def train(storage):
        torch._dynamo.reset()
        run = Run(storage)
        compiled = torch.compile(run.model, backend="eager")
        while run.handle.step < 6:
            run.optimizer.zero_grad()
            inputs, targets = batch(run.handle.step)
            nn.functional.cross_entropy(compiled(inputs), targets).backward()
            run.optimizer.step()
        return run

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one, two = train("compact"), train("dense")
    torch.testing.assert_close(one.model[0].weight, two.model[0].weight)


def test_flops_are_counted():
    from torch.utils.flop_counter import FlopCounterMode

    counts = []
    for storage in ("compact", "dense"):
        run = Run(storage)
        with FlopCounterMode(display=False) as counter:
            run.loss(0).backward()
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1]


@pytest.mark.parametrize(
    "method",
    [
        method if method in ("sparse-momentum", "set") else pytest.param(method, marks=pytest.mark.deep)
        for method in sorted(set(METHODS) - WITH_DENSE_PARTS)
    ],
)
def test_the_conformance_suite(method):
    testing.check_method(method, storage="compact")


@pytest.mark.parametrize(("least", "expected"), [(1, True), (10**9, False)])
def test_updates_of_large_networks_give_kept_buffers_back(least, expected, monkeypatch):
    updates = []
    monkeypatch.setattr(stepping, "_LARGE", least)
    monkeypatch.setattr(stepping.allocator, "returning", lambda: nullcontext(updates.append(run.handle.updates)))
    run = Run()
    run.run()
    assert updates == (list(range(run.handle.updates)) if expected else [])
    assert run.handle.updates > 1
