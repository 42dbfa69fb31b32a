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
