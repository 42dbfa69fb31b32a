import pytest
import torch
from torch import nn

from regrow.analysis.activations import input_densities


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 1, bias=False)
        self.fc = nn.Linear(4, 4)
        self.drop = nn.Dropout(0.9)
        nn.init.constant_(self.conv.weight, -1.0)

    def forward(self, x):
        x = self.conv(torch.relu(self.conv(x)))
        return self.fc(self.drop(torch.relu(x)).flatten(1))


def test_mean_over_calls_and_zeros_of_relu():
    images = torch.tensor([[[[-1.0, 1.0], [1.0, 0.0]]]])
    found = input_densities(Twice(), images)
    # First call sees 3 of 4 entries, the second one the single positive entry of -x; behind it nothing is positive.
    assert found == {"conv": (3 / 4 + 1 / 4) / 2, "fc": 0.0}


def test_model_is_left_as_it_was_also_after_an_error():
    model = Twice().train()
    model.fc.eval()
    input_densities(model, torch.ones(2, 1, 2, 2))
    with pytest.raises(RuntimeError):
        input_densities(model, torch.ones(2, 1, 3, 3))
    assert model.training
    assert not model.fc.training
    assert not any(module._forward_pre_hooks for module in model.modules())
