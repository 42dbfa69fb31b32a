import pytest
import torch
from torch import nn

from regrow import models


def order(model, first, last):
    """Types of the modules between two names."""
    names = list(model._modules)
    return [type(model._modules[name]) for name in names[names.index(first) : names.index(last) + 1]]


def test_convolutions_normalise_before_relu_and_the_classifier_after():
    model = models.create("vgg16-d")
    assert order(model, "conv1", "relu1") == [nn.Conv2d, nn.BatchNorm2d, nn.ReLU]
    assert order(model, "fc1", "fc3") == [nn.Linear, nn.ReLU, nn.BatchNorm1d] * 2 + [nn.Linear]


@pytest.mark.parametrize("name", ["vgg16-c", "vgg16-d", "vgg16-like"])
def test_pooling_follows_convolutions_2_4_7_10_13(name):
    names = list(models.create(name)._modules)
    pooled = [names[i - 1] for i, module in enumerate(names) if module.startswith("pool")]
    assert pooled == ["relu2", "relu4", "relu7", "relu10", "relu13"]


def test_padding_of_the_1x1_convolutions():
    padded, plain = models.create("vgg16-c"), models.create("vgg16-c-snip")
    for number in (7, 10, 13):
        assert padded.get_submodule(f"conv{number}").padding == (1, 1)
        assert plain.get_submodule(f"conv{number}").padding == (0, 0)
        assert plain.get_submodule(f"conv{number}").kernel_size == (1, 1)
    same = models.create("vgg16-c", pad_1x1=False)
    assert same(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    assert same.fc1.in_features == plain.fc1.in_features == 512
