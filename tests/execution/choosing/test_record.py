"""Recording one training step; copies of a watched model listen for nobody."""

import copy
import pickle

import pytest
import torch
from torch import nn

from regrow.execution.choosing.record import Recorder, leaves
from tests.execution.automatic import net


def test_order_shapes_and_gradients():
    model = net()
    recorder = Recorder(model)
    x = torch.randn(4, 3, 8, 8)
    model(x)
    calls = recorder.calls
    assert list(calls) == [name for name, _ in leaves(model)]
    assert calls["0"].shape == (4, 3, 8, 8)
    assert not calls["0"].needs_gradient
    assert calls["4"].needs_gradient
    assert recorder.batch[0][0] is x


def test_the_last_step_counts_and_evaluation_does_not():
    model = net()
    recorder = Recorder(model)
    for size in (4, 6):
        model(torch.randn(size, 3, 8, 8))
    with torch.no_grad():
        model(torch.randn(9, 3, 8, 8))
    model.eval()(torch.randn(9, 3, 8, 8))
    assert recorder.calls["8"].shape == (6, 12)


def test_calls_of_a_module_are_counted_within_a_step():
    relu = nn.ReLU()
    model = nn.Sequential(nn.Linear(4, 6), relu, nn.Linear(6, 4), relu)
    recorder = Recorder(model)
    for _ in range(2):
        model(torch.randn(2, 4))
    assert {name: (call.times, call.shape) for name, call in recorder.calls.items()} == {
        "0": (1, (2, 4)), "1": (2, (2, 6)), "2": (1, (2, 6))
    }  # fmt: skip


def test_autocast_is_recorded():
    model = nn.Sequential(nn.Linear(4, 4))
    recorder = Recorder(model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(torch.randn(2, 4))
    assert recorder.calls["0"].autocast is torch.bfloat16


@pytest.mark.parametrize("how", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_listens_for_nobody(how):
    model = net()
    recorder = Recorder(model)
    how(model)(torch.randn(4, 3, 8, 8))
    assert recorder.calls == {}


def test_removed_hooks_are_gone():
    model = net()
    Recorder(model).remove()
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_compiled_models_are_not_disturbed():
    model = net()
    recorder = Recorder(model)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    compiled(torch.randn(4, 3, 8, 8)).sum().backward()
    assert recorder.calls == {}
