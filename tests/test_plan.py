"""The table before training, against counts by hand."""

import pytest
import torch
from torch import nn

import regrow
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


def test_dense_weights_are_those_of_layers_outside_the_budget():
    *_, partly = table(scope=["@last"])
    *_, fully = table()
    assert (partly.dense_weights, fully.dense_weights) == (60, 0)


def test_the_share_of_macs_is_that_of_the_present_weights():
    _, handle, plan = table(density=0.5)
    whole = {row.layer: row.macs for row in table(density=1.0)[2] if row.sparse}
    assert plan.macs_share == pytest.approx(sum(row.macs for row in plan if row.sparse) / sum(whole.values()))
    assert handle.plan().macs_share is None, "without an example nothing is counted"


def test_macs_against_counts_by_hand():
    """One sample of 3x8x8: conv -> 8x3x3, up -> 4x6x6, depthwise 4x6x6, tokens on 4 rows, head on one."""
    *_, plan = table(density=1.0)
    macs = {row.layer: row.macs for row in plan if row.sparse}
    assert macs == {
        "conv": 8 * 9 * 3 * 9,
        "up": 8 * 9 * 4 * 4,
        "depthwise": 4 * 36 * 9,
        "tokens": 4 * 36 * 5,
        "head": 20 * 3,
    }


def test_macs_count_present_weights():
    _, handle, plan = table(density=0.25)
    rows = {row.layer: row for row in plan}
    assert rows["conv"].macs == 9 * int(handle.masks["conv"].count_nonzero())


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
    assert "MACs" not in str(handle.plan())


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


def test_work_is_compared_with_dense():
    _, _, plan = table()
    total = sum(row.macs for row in plan if row.macs is not None)
    dense = sum(round(row.macs / row.density) for row in plan if row.macs is not None)
    assert total < dense
    assert f"{total:,} multiply-accumulates (MACs) a sample, {total / dense:.2%} of {dense:,} dense" in plan.notes()


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
