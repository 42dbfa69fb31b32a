import math

import pytest
import torch
from torch import nn

from regrow import models
from regrow.models.wide_resnet import Block


def test_initialisation_is_he_normal_by_fan_out():
    model = models.create("wrn-16-8", seed=0)
    weight = model.block2[0].conv1.weight
    assert weight.std().item() == pytest.approx(math.sqrt(2 / (9 * 256)), rel=0.01)
    assert model.fc.bias.eq(0).all()
    assert model.bn1.weight.eq(1).all()
    assert model.bn1.bias.eq(0).all()


def test_dropout_rate_is_an_option():
    rates = {m.p for m in models.create("wrn-28-2").modules() if isinstance(m, nn.Dropout)}
    assert rates == {0.3}
    rates = {m.p for m in models.create("wrn-28-2", dropout=0.0).modules() if isinstance(m, nn.Dropout)}
    assert rates == {0.0}


def test_shortcut_takes_the_raw_input_or_projects_the_activated_one():
    same = Block(4, 4, stride=1, dropout=0.0).eval()
    nn.init.zeros_(same.conv2.weight)
    x = torch.randn(2, 4, 8, 8)
    assert torch.equal(same(x), x)

    wider = Block(4, 6, stride=2, dropout=0.0).eval()
    nn.init.zeros_(wider.conv2.weight)
    assert torch.equal(wider(x), wider.shortcut(torch.relu(wider.bn1(x))))


def test_every_group_starts_with_a_shortcut():
    model = models.create("wrn-22-2")
    shortcuts = [name for name, _ in model.named_modules() if name.endswith("shortcut")]
    assert shortcuts == ["block1.0.shortcut", "block2.0.shortcut", "block3.0.shortcut"]


def test_impossible_depth():
    from regrow.models.wide_resnet import wide_resnet

    with pytest.raises(ValueError, match=r"6n \+ 4 .* not 20"):
        wide_resnet(depth=20)
