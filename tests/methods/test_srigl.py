"""SRigL: the same fan-in in every active unit, ablation of units without salient weights."""

import torch

from regrow.methods import build
from tests.support.manual import Manual
from tests.support.views import update, view


def fan_ins(mask):
    return mask.flatten(1).sum(1).tolist()


def test_the_first_masks_have_constant_fan_in_within_the_budget():
    run = Manual("srigl", [torch.rand(7, 12), torch.rand(12, 9), torch.rand(30, 3)], density=0.3)
    for mask, count in zip(run.masks, run.handle.network.counts, strict=True):
        used = {n for n in fan_ins(mask) if n}
        assert len(used) == 1
        assert count - mask.shape[0] < int(mask.count_nonzero()) <= count


def test_fan_in_stays_constant_over_training():
    run = Manual("srigl", [torch.rand(7, 12), torch.rand(12, 9)], density=0.4, steps=40, update_every=2,
                 optimizer=lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9))  # fmt: skip
    start = run.masks
    for _ in range(40):
        run.step(torch.randn(7, 12), torch.randn(12, 9))
        for mask, count in zip(run.masks, run.handle.network.counts, strict=True):
            assert len({n for n in fan_ins(mask) if n}) == 1
            assert int(mask.count_nonzero()) <= count
    assert any(bool((a != b).any()) for a, b in zip(start, run.masks, strict=True))


def test_a_unit_without_salient_weights_is_ablated_and_its_budget_moves():
    weight = torch.tensor([[5.0, 5.0, 0.0, 0.0, 0.0], [5.0, 5.0, 0.0, 0.0, 0.0], [0.1, 0.1, 0.0, 0.0, 0.0]])
    gradient = torch.tensor([[0.0, 0.0, 3.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0, 4.0], [0.0] * 5])
    layers = [view(weight, gradient=gradient), view(torch.ones(2, 2), gradient=torch.ones(2, 2))]
    change = build("srigl", {"ablation": 0.5}).update(update(*layers, rate=0.34, targets=[6, 4]))
    assert change.masks[0].int().tolist() == [[1, 1, 1, 0, 0], [1, 1, 0, 0, 1], [0, 0, 0, 0, 0]]


def test_the_last_layer_keeps_all_units():
    weight = torch.tensor([[5.0, 5.0, 0.0, 0.0], [5.0, 5.0, 0.0, 0.0], [0.1, 0.1, 0.0, 0.0]])
    layer = view(weight, gradient=torch.zeros(3, 4))
    change = build("srigl", {"ablation": 0.9}).update(update(layer, rate=0.34, targets=[6]))
    assert fan_ins(change.masks[0]) == [2, 2, 2]


def test_ablation_never_asks_for_more_than_the_dense_fan_in():
    weight = torch.tensor([[5.0, 5.0], [4.0, 4.0], [0.1, 0.1]])
    layers = [view(weight, gradient=torch.zeros(3, 2)), view(torch.ones(1, 1), gradient=torch.ones(1, 1))]
    change = build("srigl", {"ablation": 1.0}).update(update(*layers, rate=0.9, targets=[6, 1]))
    assert change.masks[0].all()
