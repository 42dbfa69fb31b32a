import math

import pytest
import torch
from torch import nn

from regrow import models
from regrow.models.resnet import Bottleneck


@pytest.mark.parametrize(("init", "fan"), [("fan_out", 512), ("fan_in", 1024)])
def test_initialisation(init, fan):
    weight = models.create("resnet50", seed=0, init=init).layer4[0].conv1.weight
    assert weight.shape == (512, 1024, 1, 1)
    assert weight.std().item() == pytest.approx(math.sqrt(2 / fan), rel=0.01)


def test_unknown_initialisation():
    with pytest.raises(ValueError, match="'fan_out' or 'fan_in', not 'fan'"):
        models.create("resnet50", init="fan")


def test_stride_sits_on_the_3x3_convolution():
    block = Bottleneck(8, 4, stride=2)
    assert (block.conv1.stride, block.conv2.stride, block.downsample.stride) == ((1, 1), (2, 2), (2, 2))


def test_identity_shortcut():
    block = Bottleneck(16, 4, stride=1).eval()
    nn.init.zeros_(block.conv3.weight)
    x = torch.randn(1, 16, 5, 5)
    assert torch.equal(block(x), x.relu())
    assert not block.projects
