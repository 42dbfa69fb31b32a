"""Uses of weights, against counts by hand; plans and models.cost count alike."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import regrow
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


class Folded(nn.Module):
    """Frames of a film go through a convolution as if they were samples, and each of their pixels through a linear layer."""

    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 8, 3), nn.Linear(8, 8)

    def forward(self, x):
        y = self.conv(x.flatten(0, 1)).permute(0, 2, 3, 1)
        return self.fc(y.reshape(-1, 8)).view(len(x), -1).sum(1)


def test_samples_folded_into_the_first_dimension_count():
    model, films = Folded(), torch.randn(2, 5, 3, 6, 6)
    with FlopCounterMode(display=False) as counter:
        model(films[:1])
    assert cost(model, (5, 3, 6, 6)).flops == cost(model, sample=films).flops == counter.get_total_flops() == 44800
    assert uses_per_weight(model, films) == {model.conv.weight: 5 * 16, model.fc.weight: 5 * 16}


def test_prices_of_weights_see_folded_samples():
    model = Folded()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    handle = regrow.sparsify(
        model, optimizer, density=0.5, steps=10, update_every=5, cost_power=1.0, costs=torch.randn(2, 5, 3, 6, 6)
    )
    assert handle.network.costs == [80.0, 80.0]


def test_samples_behind_time_steps_and_inputs_without_samples():
    lstm, attend, conv = nn.LSTM(6, 8), nn.MultiheadAttention(6, 2), nn.Conv2d(3, 4, 3)
    steps_first = torch.randn(5, 3, 6)
    assert uses_per_weight(lstm, steps_first)[lstm.weight_ih_l0] == 5
    assert uses_per_weight(attend, (steps_first,) * 3)[attend.out_proj.weight] == 5
    assert uses_per_weight(lstm, torch.randn(5, 6))[lstm.weight_ih_l0] == 5
    assert uses_per_weight(conv, torch.randn(3, 6, 6)) == {conv.weight: 16}
    packed = nn.utils.rnn.pack_sequence([torch.randn(4, 6), torch.randn(2, 6)])
    assert uses_per_weight(lstm, (packed,))[lstm.weight_ih_l0] == 6, "steps in all: a packed batch hides its size"
