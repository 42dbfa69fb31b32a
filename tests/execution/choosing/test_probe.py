"""Layouts of what is timed."""

import pytest
import torch
from torch import nn

from regrow import native
from regrow.execution.choosing.probe import Conversion, Probe, in_chwn, ordinary, random_input
from regrow.execution.choosing.record import Call
from regrow.execution.kernels import pattern
from regrow.execution.kernels.layout import lies_chwn


def call(*shape, grad=True):
    return Call("x", shape, torch.float32, grad, None)


def test_layouts_keep_values():
    x = torch.randn(4, 3, 5, 5)
    assert lies_chwn(in_chwn(x, nn.Conv2d(3, 3, 1)))
    assert torch.equal(in_chwn(x, nn.Conv2d(3, 3, 1)), x)
    assert ordinary(x, True).is_contiguous(memory_format=torch.channels_last)
    assert ordinary(in_chwn(x, nn.Conv2d(3, 3, 1)), False).is_contiguous()
    tokens = torch.randn(2, 3, 8)
    assert torch.equal(in_chwn(tokens, nn.Linear(8, 8)), tokens)
    assert in_chwn(tokens, nn.Linear(8, 8)).stride() == (3, 1, 6)
    assert in_chwn(torch.ones(8), nn.Linear(8, 8)).dim() == 1


def test_inputs_leave_the_generator_alone():
    before = torch.get_rng_state()
    assert torch.equal(random_input(call(3, 4)), random_input(call(3, 4)))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.skipif(not native.available(), reason="native kernels not built")
@pytest.mark.parametrize("window", [False, True])
def test_a_probe_leaves_its_module_alone(window):
    module = nn.Conv2d(3, 4, 3)
    weight = module.weight.detach().clone()
    probe = Probe(module, call(5, 3, 6, 6), True, False, torch.rand(weight.shape) < 0.5, None, window)
    probe()
    probe()
    assert type(module) is nn.Conv2d
    assert module.weight.grad is None
    assert torch.equal(module.weight, weight)


def test_frozen_modules_run_forward_only():
    module = nn.Linear(3, 2).requires_grad_(False)
    Probe(module, call(4, 3, grad=False), False, False)()
    assert module.weight.grad is None


@pytest.mark.parametrize("enters", [True, False])
def test_conversions_run(enters):
    before = torch.get_rng_state()
    module = nn.Conv2d(3, 3, 1)
    drawn = torch.get_rng_state()
    Conversion(module, call(4, 3, 5, 5), enters, True)()
    assert not torch.equal(before, drawn)
    assert torch.equal(drawn, torch.get_rng_state())
    assert module.weight.grad is None


@pytest.mark.skipif(not native.available(), reason="native kernels not built")
def test_lists_are_built_before_the_stopwatch_runs(monkeypatch):
    built = []
    original = pattern.KernelPlan.__init__
    monkeypatch.setattr(pattern.KernelPlan, "__init__", lambda self, *a: built.append(1) or original(self, *a))
    probe = Probe(nn.Conv2d(3, 4, 3), call(5, 3, 6, 6), True, False, torch.ones(4, 3, 3, 3, dtype=torch.bool))
    probe.prepare()
    count = len(built)
    probe()
    assert len(built) == count > 0
