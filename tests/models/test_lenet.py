import copy
from collections import OrderedDict

import torch
from torch import nn

from regrow import models


def test_original_form_has_one_relu_and_the_same_parameters():
    reference = models.create("lenet5", seed=0)
    original = models.create("lenet5", seed=0, conv_relu=False)
    assert [name for name, m in original.named_modules() if isinstance(m, nn.ReLU)] == ["relu3"]
    assert [name for name, m in reference.named_modules() if isinstance(m, nn.ReLU)] == ["relu1", "relu2", "relu3"]
    assert all(map(torch.equal, reference.state_dict().values(), original.state_dict().values()))


def test_default_initialisation_range():
    weight = models.create("lenet300", seed=0).fc1.weight
    bound = 784**-0.5
    assert weight.abs().max() <= bound
    assert weight.abs().max() > 0.99 * bound


def test_lenet5_equals_the_order_of_the_paper_s_code_bit_by_bit():
    ours = models.create("lenet5", seed=0)
    layers = dict(ours.named_children())
    names = ["conv1", "relu1", "pool1", "conv2", "relu2", "pool2", "flatten", "fc3", "relu3", "fc4"]
    theirs = copy.deepcopy(nn.Sequential(OrderedDict((name, layers[name]) for name in names)))
    images = torch.randn(8, 1, 28, 28)
    outputs = [network(images) for network in (ours, theirs)]
    assert torch.equal(*outputs)
    for output in outputs:
        output.square().sum().backward()
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
