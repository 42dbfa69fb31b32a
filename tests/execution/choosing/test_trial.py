"""Whole-model trials on a copy that tells nobody."""

import pytest
import torch
from torch import nn

from regrow import native
from regrow.execution import attach, execution_of
from regrow.execution.choosing.trial import Trial, dense_copy
from regrow.execution.modules.chwn import use_chwn
from tests.execution.automatic import Stopwatch, net

pytestmark = pytest.mark.skipif(not native.available(), reason="native kernels not built")


def test_a_copy_is_dense_and_silent_but_computes_the_same():
    model = net().eval()
    model[4] = nn.utils.parametrizations.weight_norm(model[4])
    heard = []
    model[1].register_forward_hook(lambda *_: heard.append(1))
    model[1].register_full_backward_hook(lambda *_: heard.append(2))
    x = torch.randn(4, 3, 8, 8)
    expected = model(x)
    attach(model[0], torch.ones_like(model[0].weight, dtype=torch.bool))
    use_chwn(model)
    heard.clear()
    twin = dense_copy(model)
    torch.testing.assert_close(twin(x), expected)
    twin(x).sum().backward()
    assert heard == []
    assert execution_of(twin[0]) is None
    assert type(twin[1]) is nn.BatchNorm2d
    assert execution_of(model[0]) is not None


def test_hooks_of_torch_stay():
    model = nn.Sequential(nn.utils.spectral_norm(nn.Linear(3, 3)))
    twin = dense_copy(model)
    assert len(twin[0]._forward_pre_hooks) == 1


def test_assignments_switch_layers():
    twin = net()
    executions = {name: attach(twin[int(name)], torch.rand(twin[int(name)].weight.shape) < 0.5) for name in ("0", "4")}
    use_chwn(twin)
    seen = {}

    def timer(candidates):
        for name, run in candidates.items():
            run()
            seen[name] = [n for n, execution in executions.items() if execution.live]
        return dict.fromkeys(candidates, 1.0)

    x = torch.randn(4, 3, 8, 8)
    trial = Trial(twin, executions, ((x,), {}), None)
    trial.prepare(frozenset({"0"}))
    assert [execution.live for execution in executions.values()] == [True, False]
    ms = trial.time({"masked": frozenset(), "predicted": frozenset({"4"})}, timer)
    assert ms == {"masked": 1.0, "predicted": 1.0}
    assert seen == {"whole model, masked": [], "whole model, predicted": ["4"]}
    assert all(p.grad is None for p in twin.parameters())


def test_outputs_of_any_structure_and_models_that_write_into_their_input():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x, scale=1):
            return {"a": self.fc(x.mul_(2)), "n": [scale, None]}

    x = torch.ones(2, 3)
    Trial(Odd(), {}, ((x,), {"scale": 2}), None).time({"masked": frozenset()}, Stopwatch(runs=True))
    assert torch.equal(x, torch.ones(2, 3))
