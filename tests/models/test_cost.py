import pytest
import torch
from torch import nn

from regrow import models
from regrow.models.cost import cost


class Odd(nn.Module):
    """Has a layer that is used twice, one that is never used, and kinds that cannot be counted."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.twice = nn.Linear(4, 4)
        self.never = nn.Linear(4, 9)
        self.norm = nn.LayerNorm(4)
        self.up = nn.ConvTranspose2d(1, 1, 2)

    def forward(self, x):
        x = self.norm(self.twice(self.twice(x))) * self.scale.sum()
        return self.up(x.view(-1, 1, 2, 2)), "extra"


def test_layers_that_are_shared_unused_or_unknown():
    count = cost(Odd(), (4,))
    assert (count["twice"].macs, count["twice"].calls) == (32, 2)
    assert (count["never"].macs, count["never"].calls, count["never"].output_shape) == (0, 0, None)
    assert (count[""].kind, count[""].macs, count[""].extra) == ("other", None, 3)
    assert (count["norm"].kind, count["norm"].macs, count["norm"].extra) == ("norm", 0, 8)
    assert count["up"].macs == 4 * 4, "a transposed convolution uses its weights once per input position"
    assert count.params == sum(p.numel() for p in Odd().parameters())
    assert count.macs == 32 + 16


def test_linear_layer_over_a_sequence_counts_each_position():
    assert cost(nn.Sequential(nn.Linear(4, 5)), (7, 4)).macs == 7 * 20


def test_grouped_convolution():
    count = cost(nn.Sequential(nn.Conv2d(4, 8, 3, groups=4)), (4, 6, 6))
    assert count.macs == 8 * 1 * 9 * 16


def test_model_is_left_as_it_was():
    model = models.create("alexnet-s", seed=0).train()
    model.bn1.eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    cost(model, (3, 32, 32))
    assert model.training
    assert not model.bn1.training
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())


class LooksAtValues(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)

    def forward(self, x):
        return self.fc(x) if x.sum().item() >= 0 else x


def test_a_real_sample_for_models_that_look_at_values():
    assert cost(LooksAtValues(), sample=torch.ones(1, 2)).macs == 4
    with pytest.raises(ValueError, match="sample="):
        cost(LooksAtValues(), (2,))


def test_wrong_shape():
    with pytest.raises(ValueError, match=r"could not be run on the shape \(3, 28, 28\)"):
        cost(models.create("lenet5"), (3, 28, 28))


def test_arguments():
    with pytest.raises(TypeError, match="either input_shape or sample"):
        cost(nn.Linear(1, 1))
    count = cost(models.create("lenet300"), (1, 28, 28))
    with pytest.raises(ValueError, match="no convolution or linear layer is called fc9"):
        count.macs_at({"fc9": 0.5})
    with pytest.raises(KeyError):
        count["fc9"]
