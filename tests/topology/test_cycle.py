"""The cycle: prune, redistribute, grow."""

import torch

from regrow.topology import score
from regrow.topology.cycle import rewire, to_masks
from regrow.topology.grow import Grow
from regrow.topology.prune import Prune, down_to_floor
from regrow.topology.redistribute import Redistribute, survivors
from tests.support.views import bits, update, view


def layer(present, momentum=None):
    mask = bits(present)
    values = torch.arange(1.0, len(present) + 1)
    return view(values * mask, mask, values if momentum is None else torch.tensor(momentum))


def test_without_pieces_nothing_changes():
    work = update(layer("1100"))
    change = rewire(work, None, None, None)
    assert torch.equal(change.masks[0], bits("1100"))
    assert not change.removed[0].any()
    assert not change.grown[0].any()


def test_every_layer_regrows_what_it_lost_without_redistribution():
    change = rewire(update(layer("111100"), layer("110000"), rate=0.5), Prune(), None, Grow(score.momentum))
    assert [int(m.count_nonzero()) for m in change.masks] == [4, 2]
    assert change.masks[0].tolist() == bits("001111").tolist()


def test_targets_let_the_budget_grow_and_shrink():
    work = update(layer("111100"), layer("110000"), rate=0.5, targets=[5, 3])
    assert [int(m.count_nonzero()) for m in rewire(work, Prune(), None, Grow(score.momentum)).masks] == [5, 3]
    work = update(layer("111100"), layer("110000"), targets=[2, 1])
    assert [int(m.count_nonzero()) for m in rewire(work, Prune(count=down_to_floor), None, None).masks] == [2, 1]


def test_shares_see_how_many_were_removed():
    work = update(layer("1111110000"), layer("1100000000"), rate=0.5)
    change = rewire(work, Prune(), Redistribute(survivors), Grow(score.momentum))
    assert [v.removed for v in work.layers] == [3, 1]
    assert [int(g.count_nonzero()) for g in change.grown] == [3, 1]


def test_capacity_widens_to_just_pruned_positions_only_when_needed():
    grow = Grow(score.momentum, candidates="not-just-pruned")
    full = update(layer("1111"), rate=0.5)
    assert rewire(full, Prune(), Redistribute(survivors), grow).masks[0].all()
    roomy = update(layer("11110000"), rate=0.5)
    assert rewire(roomy, Prune(), Redistribute(survivors), grow).masks[0].tolist() == bits("00110011").tolist()


def test_masks_chosen_directly_are_translated_into_losses_and_gains():
    change = to_masks(update(layer("1100")), [bits("0110")])
    assert change.removed[0].tolist() == bits("1000").tolist()
    assert change.grown[0].tolist() == bits("0010").tolist()
