"""Dense weight gradients of growth windows: the same numbers on either side's kernels."""

import pytest
import torch
from torch import nn

from regrow.execution import SparsePattern
from regrow.execution.kernels import gradient as gradients
from regrow.execution.kernels.gradient import whole_weight_gradient
from regrow.execution.kernels.layout import to_chwn
from regrow.execution.modules.geometry import geometry_of

LAYERS = {
    "few channels": nn.Conv2d(1, 4, 5),
    "uneven padding": nn.Conv2d(3, 4, (2, 4), padding="same"),
    "strided groups": nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2),
}


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("missing", [0, 1])
def test_gradients_are_those_of_all_weights_whether_any_is_missing_or_none(name, missing):
    layer = LAYERS[name].double()
    x = torch.randn(5, layer.in_channels, 9, 8, dtype=torch.float64)
    y = layer(x)
    grad = torch.randn_like(y)
    (expected,) = torch.autograd.grad(y, layer.weight, grad)
    mask = torch.ones_like(layer.weight, dtype=torch.bool)
    mask.view(-1)[:missing] = False
    pattern = SparsePattern(mask, geometry_of(layer))
    torch.testing.assert_close(whole_weight_gradient(to_chwn(x), to_chwn(grad), pattern), expected)


def test_full_convolutions_stay_on_the_native_kernels(monkeypatch):
    calls = []
    monkeypatch.setattr(gradients.passes, "weight_gradient", lambda *arguments: calls.append(arguments))
    x, grad = torch.randn(2, 1, 6, 6), torch.randn(2, 4, 2, 2)
    mask = torch.ones(4, 1, 5, 5, dtype=torch.bool)
    whole_weight_gradient(x, grad, SparsePattern(mask, geometry_of(LAYERS["few channels"])))
    assert len(calls) == 1
    mask[0, 0, 0, 0] = False
    whole_weight_gradient(x, grad, SparsePattern(mask, geometry_of(LAYERS["few channels"])))
    assert len(calls) == 1, "a weight is missing: torch's dense kernels"
