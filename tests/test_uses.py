"""Uses of weights, against counts by hand; plans and models.cost count alike."""

import pytest
import torch
from torch import nn

from regrow import models
from regrow.models.cost import cost
from regrow.uses import evaluation_mode, uses_per_weight


def test_every_call_of_a_shared_layer_counts():
    shared = nn.Linear(4, 4)
    twice = nn.Sequential(shared, nn.Tanh(), shared)
    assert uses_per_weight(twice, torch.randn(3, 4)) == {shared.weight: 2}
    assert uses_per_weight(shared, torch.randn(3, 7, 4)) == {shared.weight: 7}
    assert uses_per_weight(shared, torch.randn(4)) == {shared.weight: 1}


@pytest.mark.parametrize("name", ["lenet300", "lenet5", "alexnet-s", "wrn-28-2"])
def test_plans_and_costs_count_alike(name):
    model, shape = models.create(name, seed=0), models.info(name).input_shape
    uses = uses_per_weight(model, torch.zeros(1, *shape))
    counted = {layer.name: layer.macs for layer in cost(model, shape).sparsifiable}
    assert counted == {n: uses[m.weight] * m.weight.numel() for n, m in model.named_modules() if n in counted}
    assert min(counted.values()) > 0


def test_a_failing_model_is_left_as_it_was():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(4, 4)).train()
    with pytest.raises(RuntimeError):
        uses_per_weight(model, torch.randn(1, 3))
    assert model[0].training
    assert not model[0]._forward_hooks


def test_evaluation_mode_restores_each_module():
    model = nn.Sequential(nn.Dropout(), nn.Dropout())
    model[1].eval()
    with evaluation_mode(model):
        assert not model[0].training
    assert [module.training for module in model] == [True, False]


def test_macs_of_recurrent_and_attention_layers():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(6, 8, batch_first=True)
            self.attend = nn.MultiheadAttention(8, 2, batch_first=True)
            self.cross = nn.MultiheadAttention(8, 2, kdim=6, vdim=6, batch_first=True)
            self.pair = nn.Bilinear(8, 8, 3)

        def forward(self, x):
            y, _ = self.lstm(x)
            y, _ = self.attend(y, y, y)
            z, _ = self.cross(query=y[:, :2], key=x, value=x)
            return self.pair(z, y[:, :2])

    model = Mixed()
    found = {name: uses_per_weight(model, torch.randn(3, 5, 6)).get(p) for name, p in model.named_parameters()}
    assert {name: per for name, per in found.items() if per is not None} == {
        "lstm.weight_ih_l0": 5,
        "lstm.weight_hh_l0": 5,
        "attend.in_proj_weight": 5,
        "attend.out_proj.weight": 5,
        "cross.q_proj_weight": 2,
        "cross.k_proj_weight": 5,
        "cross.v_proj_weight": 5,
        "cross.out_proj.weight": 2,
        "pair.weight": 2,
    }
