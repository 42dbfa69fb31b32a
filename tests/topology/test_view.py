"""What criteria see."""

import torch

from regrow.topology.view import needs, needs_of
from tests.support.views import Known, view


def test_counts():
    layer = view(torch.tensor([1.0, 0.0, 2.0]))
    assert (layer.numel, layer.nnz, layer.missing) == (3, 2, 1)


def test_bands_of_a_joint_parameter_see_their_own_rows():
    whole = torch.arange(12.0).view(6, 2)
    layer = view(torch.ones(2, 2), momentum=whole, gradient=-whole, rows=slice(2, 4))
    layer.evidence = Known(whole, -whole, whole**2)
    assert layer.momentum.tolist() == [[4.0, 5.0], [6.0, 7.0]]
    assert layer.gradient.tolist() == [[-4.0, -5.0], [-6.0, -7.0]]
    assert layer.second_moment.tolist() == [[16.0, 25.0], [36.0, 49.0]]


def test_units_and_back_for_ordinary_and_transposed_layers():
    for dim, shape in ((0, (3, 4, 2)), (1, (4, 3, 2))):
        weight = torch.randn(shape)
        layer = view(weight, output_dim=dim)
        units = layer.units(weight)
        assert units.shape == (3, 8)
        assert torch.equal(units[1], weight.select(dim, 1).reshape(-1))
        assert torch.equal(layer.from_units(units), weight)


def test_draws_depend_on_purpose_and_layer_only():
    draws = [view(torch.ones(5), index=i).random(purpose) for i, purpose in ((0, "a"), (0, "a"), (0, "b"), (1, "a"))]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert not torch.equal(draws[0], draws[3])


def test_needs_are_declared():
    @needs("gradient", "momentum")
    def criterion(layer):
        return layer.weight

    assert needs_of(criterion) == {"gradient", "momentum"}
    assert needs_of(lambda layer: layer.weight) == frozenset()
