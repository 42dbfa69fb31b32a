"""Learning rates against hand values, and optimizers as configured."""

import pytest
import torch
from torch import nn

from regrow.config import Config, Optimizer, Schedule
from regrow.training.optimisation import build_optimizer, learning_rate


def rates(steps, per_epoch=10, lr=0.4, **schedule):
    config = Config(epochs=10, optimizer=Optimizer(lr=lr), schedule=Schedule(**schedule))
    return [learning_rate(config, step, per_epoch) for step in steps]


def test_step_by_steps():
    assert rates((0, 29, 30, 59, 60), kind="step", factor=0.5, every=30) == pytest.approx([0.4, 0.4, 0.2, 0.2, 0.1])


def test_step_at_epochs_may_be_fractions():
    assert rates((0, 24, 25, 49, 50), kind="step", factor=0.1, epochs=(2.5, 5.0)) == pytest.approx(
        [0.4, 0.4, 0.04, 0.04, 0.004]
    )


def test_cosine_by_hand():
    # 100 steps: half way 0.2, at a third 0.4 * (1 + 1/2) / 2 of the way.
    assert rates((0, 50, 100), kind="cosine") == pytest.approx([0.4, 0.2, 0.0])
    assert rates((30,), per_epoch=9, kind="cosine") == pytest.approx([0.3])


def test_warmup_then_cosine():
    # Two epochs of ten steps: lr * (t + 1) / (20 + 1), then the cosine spans the remaining 80 steps.
    assert rates((0, 9, 19), kind="cosine", warmup_epochs=2.0) == pytest.approx([0.4 / 21, 4 / 21, 8 / 21])
    assert rates((20, 60, 100), kind="cosine", warmup_epochs=2.0) == pytest.approx([0.4, 0.2, 0.0])


def test_constant():
    assert rates((0, 77), kind="constant") == [0.4, 0.4]


def network():
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2, bias=False))


@pytest.mark.parametrize(
    ("name", "kind"), [("sgd", torch.optim.SGD), ("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)]
)
def test_kinds(name, kind):
    optimizer = build_optimizer(network(), Config(optimizer=Optimizer(name, lr=0.3, weight_decay=0.01)))
    assert type(optimizer) is kind
    (group,) = optimizer.param_groups
    assert (group["lr"], group["weight_decay"]) == (0.3, 0.01)


def test_betas_are_adams():
    (group,) = build_optimizer(network(), Config(optimizer=Optimizer("adamw", betas=(0.8, 0.99)))).param_groups
    assert group["betas"] == (0.8, 0.99)


def test_norms_can_be_spared_the_decay():
    model = network()
    optimizer = build_optimizer(model, Config(optimizer=Optimizer(decay_norms=False, weight_decay=0.1)))
    decayed, spared = optimizer.param_groups
    assert (decayed["weight_decay"], spared["weight_decay"]) == (0.1, 0.0)
    assert [tuple(p.shape) for p in decayed["params"]] == [(3, 4), (3,), (2, 3)], "biases are not spared"
    assert [id(p) for p in spared["params"]] == [id(p) for p in model[1].parameters()]
    assert sum(len(g["params"]) for g in optimizer.param_groups) == len(list(model.parameters()))


def test_nesterov_needs_momentum():
    (group,) = build_optimizer(network(), Config(optimizer=Optimizer(momentum=0.0))).param_groups
    assert group["nesterov"] is False
    (group,) = build_optimizer(network(), Config(optimizer=Optimizer(momentum=0.9))).param_groups
    assert group["nesterov"] is True


def test_a_step_is_torchs_own():
    model, twin = network(), network()
    twin.load_state_dict(model.state_dict())
    mine = build_optimizer(model, Config(optimizer=Optimizer(lr=0.1, weight_decay=0.01)))
    theirs = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01, foreach=False)
    inputs = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    for _ in range(3):
        for net, optimizer in ((model, mine), (twin, theirs)):
            optimizer.zero_grad()
            net(inputs).square().mean().backward()
            optimizer.step()
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a, b)
