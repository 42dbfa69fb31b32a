"""GraNet: cubic global pruning, then regeneration by gradient within layers."""

import pytest
import torch

from regrow.methods import build
from tests.support.manual import Manual
from tests.support.views import update, view


@pytest.mark.parametrize("start", [0.5, 1.0])
def test_totals_follow_the_cubic(start):
    run = Manual("granet", [torch.rand(10, 20), torch.rand(20, 15)], density=0.1, steps=64, update_every=4,
                 options={"start_density": start})  # fmt: skip
    assert run.handle.nonzeros == 500 * start
    for t in range(1, 64):
        run.step(torch.randn(10, 20), torch.randn(20, 15))
        moment = t // 4 * 4
        left = max(0.0, 1 - moment / 44)
        assert run.handle.nonzeros == int(500 * (0.1 + (start - 0.1) * left**3) + 0.5)


def test_the_cut_is_global_and_the_regeneration_local():
    layers = [
        view(torch.tensor([0.1, 0.2, 0.3, 4.0, 5.0, 6.0]), gradient=torch.tensor([9.0, 0.0, 0.0, 0.0, 0.0, 0.0])),
        view(torch.tensor([1.0, 2.0, 3.0, 4.0, 0.0, 0.0]), gradient=torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, 7.0])),
    ]
    change = build("granet", {}).update(update(*layers, rate=0.5, targets=[4, 3]))
    assert change.removed[0].tolist() == [True, True, True, True, False, False]
    assert change.removed[1].tolist() == [True, True, False, False, False, False]
    assert change.masks[0].tolist() == [True, False, False, False, True, True]
    assert change.masks[1].tolist() == [True, False, True, True, False, True]
