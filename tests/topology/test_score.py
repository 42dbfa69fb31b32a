"""Scores."""

import pytest
import torch

from regrow.topology import score
from regrow.topology.view import needs_of
from tests.support.views import Known, view


@pytest.mark.parametrize(("dtype", "wide"), [(torch.bfloat16, torch.float32), (torch.float64, torch.float64)])
def test_scores_are_at_least_single_precision(dtype, wide):
    values = torch.tensor([-2.0, 1.0], dtype=dtype)
    layer = view(values, momentum=values, gradient=values)
    for criterion in (score.magnitude, score.momentum, score.gradient):
        assert criterion(layer).dtype == wide
        assert criterion(layer).tolist() == [2.0, 1.0]


def test_magnitude_and_gradient():
    layer = view(torch.tensor([-2.0, 1.0]), gradient=torch.tensor([1.0, -5.0]))
    assert score.magnitude_and_gradient(0.5)(layer).tolist() == [2.5, 3.5]
    assert score.magnitude_and_gradient(0.0) is score.magnitude
    assert needs_of(score.magnitude_and_gradient(0.5)) == {"gradient"}


def test_magnitude_by_curvature_normalises_both_factors():
    layer = view(torch.tensor([1.0, -3.0, 0.0]))
    layer.evidence = Known(second=torch.tensor([1.0, 4.0, 9.0]))
    torch.testing.assert_close(score.magnitude_by_curvature(layer)[:2], torch.tensor([0.25 / 1.5, 0.75 * 0.5 / 1.5]))
