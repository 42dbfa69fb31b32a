"""The table before training, against counts by hand."""

import pytest
import torch
from torch import nn

import regrow
from regrow.plan import uses_per_weight
from tests.support.training import sgd


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, stride=2)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.depthwise = nn.Conv2d(4, 4, 3, groups=4, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.tokens = nn.Linear(36, 5)
        self.head = nn.Linear(20, 3)

    def forward(self, x):
        x = self.norm(self.depthwise(self.up(self.conv(x))))
        return self.head(self.tokens(x.flatten(2)).flatten(1))


def table(density=0.5, **arguments):
    torch.manual_seed(0)
    model = Net()
    handle = regrow.sparsify(model, sgd(model), "static", density=density, **arguments)
    return model, handle, handle.plan(torch.randn(2, 3, 8, 8))


def test_rows_follow_the_model_and_say_why():
    _, handle, plan = table(scope=["@last"])
    rows = {row.layer: row for row in plan}
    assert [*rows] == [
        "conv", "conv.bias", "up", "up.bias", "depthwise", "depthwise.bias", "norm", "norm.bias",
        "tokens", "tokens.bias", "head", "head.bias",
    ]  # fmt: skip
    assert rows["conv"].sparse
    assert rows["conv"].reason == "in scope"
    assert rows["conv"].kind == "Conv2d"
    assert rows["conv"].shape == (8, 3, 3, 3)
    assert not rows["head"].sparse
    assert rows["head"].reason == "kept dense by rule @last"
    assert rows["head"].nonzeros == 60
    assert rows["norm"].reason == "bias or norm"
    assert sum(row.nonzeros for row in plan if row.sparse) == handle.nonzeros
    assert plan.density == pytest.approx(handle.density)


def test_macs_against_counts_by_hand():
    """One sample of 3x8x8: conv -> 8x3x3, up -> 4x6x6, depthwise 4x6x6, tokens on 4 rows, head on one."""
    model, _, plan = table(density=1.0)
    macs = {row.layer: row.macs for row in plan if row.sparse}
    assert macs == {
        "conv": 8 * 9 * 3 * 9,
        "up": 8 * 9 * 4 * 4,
        "depthwise": 4 * 36 * 9,
        "tokens": 4 * 36 * 5,
        "head": 20 * 3,
    }
    assert uses_per_weight(model, torch.randn(1, 3, 8, 8))[model.conv.weight] == 9


def test_macs_count_present_weights_and_all_uses():
    _, handle, plan = table(density=0.25)
    rows = {row.layer: row for row in plan}
    assert rows["conv"].macs == 9 * int(handle.masks["conv"].count_nonzero())
    shared = nn.Linear(4, 4)
    twice = nn.Sequential(shared, nn.Tanh(), shared)
    assert uses_per_weight(twice, torch.randn(3, 4)) == {shared.weight: 2}
    assert uses_per_weight(shared, torch.randn(3, 7, 4)) == {shared.weight: 7}
    assert uses_per_weight(shared, torch.randn(4)) == {shared.weight: 1}


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


def test_macs_inside_a_transformer_layer():
    model = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True)
    handle = regrow.sparsify(model, sgd(model), "static", density=1.0)
    assert {row.layer: row.macs for row in handle.plan(torch.randn(2, 7, 8)) if row.sparse} == {
        "self_attn.in_proj_weight[q]": 7 * 64,
        "self_attn.in_proj_weight[k]": 7 * 64,
        "self_attn.in_proj_weight[v]": 7 * 64,
        "self_attn.out_proj": 7 * 64,
        "linear1": 7 * 96,
        "linear2": 7 * 96,
    }


def test_counting_leaves_modes_and_statistics_alone():
    model, handle, _ = table()
    model.norm.eval()
    mean = model.norm.running_mean.clone()
    handle.plan((torch.randn(2, 3, 8, 8),))
    assert model.training
    assert not model.norm.training
    assert torch.equal(model.norm.running_mean, mean)
    assert not model.conv._forward_hooks


def test_without_an_example_there_are_no_macs():
    _, handle, _ = table()
    assert all(row.macs is None for row in handle.plan())


def test_text_of_the_table():
    _, _, plan = table()
    text = str(plan)
    assert "static: 50.00% of 620 weights" in text
    for word in ("layer", "density", "non-zeros", "MACs", "depthwise", "8x3x3x3", "sparse", "50.00%"):
        assert word in text
    assert "conv.bias" not in text, "biases and norms would drown the weights"
    assert "dense besides: 32 numbers in 7 biases and norms" in text
    line = next(line for line in text.splitlines() if line.startswith("conv "))
    assert "108" in line
    assert "972" in line


def test_notes_say_why_layers_are_dense():
    _, _, plan = table(scope=["@first", "@last"])
    assert plan.notes()[-2:] == ["dense, kept dense by rule @first: conv", "dense, kept dense by rule @last: head"]
    assert [row.layer for row in plan.weights()] == ["conv", "up", "depthwise", "tokens", "head"]


def test_attention_shows_q_k_and_v():
    model = nn.MultiheadAttention(8, 2)
    handle = regrow.sparsify(model, sgd(model), "static", density=0.25)
    rows = {row.layer: row for row in handle.plan()}
    assert rows["in_proj_weight[k]"].shape == (8, 8)
    assert rows["in_proj_weight[k]"].nonzeros == 16
