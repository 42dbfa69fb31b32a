"""Channels go only where the answers stay the same: random networks in double precision against their unpruned selves."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from regrow.shipping.freeze import freeze
from tests.support.networks_to_ship import difference, masked, random_mask, shaken


class Random(nn.Module):
    """Convolutions with and without padding, groups, norms, residual sums, concatenation, gates, pooling, then linear layers."""

    def __init__(self, seed):
        super().__init__()
        rng = random.Random(seed)
        self.parts, self.plan = nn.ModuleDict(), []
        width = self._convolution(rng, 2, rng.choice([4, 6]), 3, 1)
        for _ in range(rng.randint(1, 5)):
            width = getattr(self, f"_{rng.choice(['residual', 'stack', 'gate', 'layer', 'grouped', 'pool'])}")(
                rng, width
            )
        self.parts["flatten"] = nn.Flatten()
        self.plan.append(("call", "flatten"))
        self.head = (width, rng.random() < 0.5)

    def finish(self, features):
        self._call("fc1", nn.Linear(features, 8))
        self._call("fc_relu", nn.ReLU())
        if self.head[1]:
            self._call("fc_norm", nn.BatchNorm1d(8))
        self._call("fc2", nn.Linear(8, 3))
        return self

    def _call(self, name, module):
        name = f"{name}{len(self.plan)}"
        self.parts[name] = module
        self.plan.append(("call", name))

    def _convolution(self, rng, inputs, outputs, kernel, padding, groups=1):
        self._call("conv", nn.Conv2d(inputs, outputs, kernel, padding=padding, groups=groups, bias=rng.random() < 0.7))
        if rng.random() < 0.6:
            self._call("norm", nn.BatchNorm2d(outputs))
        if rng.random() < 0.8:
            self._call("act", rng.choice([nn.ReLU(), nn.Hardswish(), nn.Sigmoid(), nn.ReLU6()]))
        return outputs

    def _layer(self, rng, width):
        kernel = rng.choice([1, 3])
        return self._convolution(
            rng, width, rng.choice([4, 6]), kernel, rng.choice([0, kernel // 2]) if kernel == 1 else 1
        )

    def _residual(self, rng, width):
        self.plan.append(("keep", None))
        self._convolution(rng, width, width, 3, 1)
        self.plan.append(("add", None))
        return width

    def _stack(self, rng, width):
        self.plan.append(("keep", None))
        added = self._convolution(rng, width, 4, 1, 0)
        self.plan.append(("cat", None))
        return width + added

    def _gate(self, rng, width):
        self.plan.append(("keep", None))
        self._call("mean", nn.AdaptiveAvgPool2d(1))
        self._convolution(rng, width, 2, 1, 0)
        self._convolution(rng, 2, width, 1, 0)
        self._call("gate", nn.Hardsigmoid())
        self.plan.append(("mul", None))
        return width

    def _grouped(self, rng, width):
        groups = rng.choice([g for g in (2, width) if width % g == 0])
        return self._convolution(rng, width, width * rng.choice([1, 2]), 3, 1, groups)

    def _pool(self, rng, width):
        self._call(
            "pool", rng.choice([nn.MaxPool2d(3, 1, 1), nn.AvgPool2d(3, 1, 1), nn.MaxPool2d(2, 1), nn.AvgPool2d(2, 1)])
        )
        return width

    def forward(self, x):
        kept = []
        for what, name in self.plan:
            if what == "call":
                x = self.parts[name](x)
            elif what == "keep":
                kept.append(x)
            elif what == "add":
                x = x + kept.pop()
            elif what == "mul":
                x = x * kept.pop()
            else:
                x = torch.cat([kept.pop(), x], dim=1)
        return x


def network(seed, density):
    torch.manual_seed(seed)
    model = Random(seed)
    with torch.no_grad():
        features = model(torch.zeros(2, 2, 9, 9)).shape[1]
    model = shaken(model.finish(features), seed).double()
    weights = [name for name, p in model.named_parameters() if p.dim() > 1]
    generator = torch.Generator().manual_seed(seed)
    masks = {name: random_mask(model.get_parameter(name).shape, density, generator) for name in weights}
    return masked(model, masks), masks


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.05, 0.15, 0.3, 0.7]), st.booleans())
def test_random_networks_answer_the_same(seed, density, with_example):
    model, masks = network(seed, density)
    x = torch.randn(3, 2, 9, 9, dtype=torch.float64)
    frozen = freeze(model, masks, x[:1] if with_example else None)
    assert frozen.untraced is None
    with torch.no_grad():
        wanted = model(x)
        scale = wanted.abs().max()
        assert (frozen(x) - wanted).abs().max() <= 1e-10 * scale
        assert (frozen.dense()(x) - wanted).abs().max() <= 1e-10 * scale
    kept = sum(p.numel() for p in frozen.dense().parameters())
    assert kept <= sum(p.numel() for p in model.parameters()) + 64, "at most biases that a fold needs are new"


def sequential(*modules):
    return shaken(nn.Sequential(*modules)).double()


def removal(model, masks=None, size=6):
    x = torch.randn(2, model[0].in_channels, size, size, dtype=torch.float64)
    frozen = freeze(model, masks or {}, x[:1])
    with torch.no_grad():
        assert difference(model(x), frozen.dense()(x)) < 1e-12
    return frozen


@torch.no_grad()
def test_channel_that_nobody_reads_goes():
    model = sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3))
    model[2].weight[:, 1] = 0
    (first, second) = removal(model).removal.changes
    assert (first.outputs, first.unread, first.constant, second.inputs) == ((4, 3), 1, 0, (4, 3))


@torch.no_grad()
def test_constant_is_folded_where_nothing_is_padded():
    model = sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 3))
    model[0].weight[2] = 0
    model[1].bias[2] = 5.0
    (first, _) = removal(model).removal.changes
    assert (first.outputs, first.unread, first.constant) == ((4, 3), 0, 1)


@torch.no_grad()
def test_constant_under_zero_padding_stays_unless_it_is_zero():
    model = sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3, padding=1))
    model[0].weight[1:3] = 0
    model[0].bias[1], model[0].bias[2] = 0.7, -0.7  # behind the ReLU: 0.7 and 0
    (first, _) = removal(model).removal.changes
    assert (first.outputs, first.constant) == ((4, 3), 1)


@torch.no_grad()
def test_chain_of_deaths_runs_backwards():
    model = sequential(nn.Conv2d(1, 4, 1), nn.ReLU(), nn.Conv2d(4, 4, 1), nn.ReLU(), nn.Conv2d(4, 2, 1))
    model[4].weight[:, 1:] = 0  # only channel 0 of the second layer is read
    model[2].weight[0, 2:] = 0  # which reads two of the first
    changes = removal(model).removal.changes
    assert [change.outputs for change in changes] == [(4, 2), (4, 1), (2, 2)]


@torch.no_grad()
def test_layer_without_weights_leaves_one_channel():
    model = sequential(nn.Conv2d(1, 4, 1), nn.ReLU(), nn.Conv2d(4, 3, 3, padding=1), nn.ReLU(), nn.Conv2d(3, 2, 1))
    model[2].weight.zero_()
    frozen = removal(model)
    assert [change.outputs[1] for change in frozen.removal.changes] == [1, 1, 2]


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 2, 1)
        self.inner, self.outer = (nn.Conv2d(4, 4, 3, padding=1) for _ in range(2))
        self.in_channels = 1

    def __getitem__(self, place):
        return self.stem

    def forward(self, x):
        x = self.stem(x)
        return self.head(x + self.outer(torch.relu(self.inner(x))))


@torch.no_grad()
def test_dead_branch_is_cut():
    model = shaken(Residual()).double()
    model.outer.weight.zero_()
    model.outer.bias.zero_()
    frozen = removal(model)
    assert frozen.removal.branches == 1
    assert [name for name, _ in frozen.dense().named_children()] == ["stem", "head"]


@torch.no_grad()
def test_dead_branches_one_behind_the_other_are_cut():
    class Two(Residual):
        def forward(self, x):
            x = self.stem(x)
            x = x + self.outer(torch.relu(self.inner(x)))
            return self.head(x + self.outer(x))

    model = shaken(Two()).double()
    model.outer.weight.zero_()
    model.outer.bias.zero_()
    assert removal(model).removal.branches == 2


@torch.no_grad()
def test_branch_that_is_a_constant_is_kept_or_folded_exactly():
    model = shaken(Residual()).double()
    model.outer.weight.zero_()
    removal(model)


@torch.no_grad()
def test_residual_sum_keeps_a_channel_that_one_side_needs():
    model = shaken(Residual()).double()
    model.outer.weight[1] = 0
    model.head.weight[:, 3] = 0
    before = {change.layer: change for change in removal(model).removal.changes}
    assert before["outer"].outputs == (4, 4), "the branch reads channel 3 of the stem; channel 1 has the stem's"
    model.inner.weight[:, 3] = 0
    changes = {change.layer: change for change in removal(model).removal.changes}
    assert changes["outer"].outputs == changes["stem"].outputs == changes["head"].inputs == (4, 3)


@torch.no_grad()
def test_table_says_what_went():
    model = sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3))
    model[2].weight[:, 1] = 0
    text = str(removal(model).removal)
    assert "4 -> 3" in text
    assert "never read" in text
    assert "1 channels and 27 present weights removed" in text


def test_unknown_operations_keep_everything():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.last = nn.Conv2d(1, 4, 1), nn.Conv2d(4, 1, 1)

        def forward(self, x):
            return self.last(self.conv(x).softmax(1))

    model = shaken(Odd()).double()
    with torch.no_grad():
        model.last.weight[:, 2] = 0
        x = torch.randn(2, 1, 3, 3, dtype=torch.float64)
        frozen = freeze(model, {}, x[:1])
        assert difference(model(x), frozen.dense()(x)) < 1e-12
    assert {change.layer: change.outputs for change in frozen.removal.changes}["conv"] == (4, 4)


@pytest.mark.parametrize("groups", [2, 4])
def test_whole_groups_go(groups):
    model = sequential(nn.Conv2d(1, 4, 1), nn.Conv2d(4, 8, 3, padding=1, groups=groups), nn.Conv2d(8, 2, 1))
    with torch.no_grad():
        model[2].weight[:, : 8 // groups] = 0
    frozen = removal(model)
    changes = frozen.removal.changes
    assert changes[1].outputs == (8, 8 - 8 // groups)
    assert changes[0].outputs == (4, 4 - 4 // groups)
