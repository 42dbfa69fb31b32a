"""Which weights come."""

import torch

from regrow.topology import score
from regrow.topology.grow import Grow
from tests.support.views import view

NONE = torch.zeros(6, dtype=torch.bool)


def six(present="110000", momentum=(1, 9, 3, -8, 3, 0), **rest):
    mask = torch.tensor([c == "1" for c in present])
    return view(torch.arange(1.0, 7) * mask, mask, torch.tensor(momentum, dtype=torch.float32), **rest)


def chosen(grown):
    return [m.view(-1).nonzero().view(-1).tolist() for m in grown]


def test_the_largest_momentum_among_what_is_missing_comes():
    assert chosen(Grow(score.momentum)([six()], [NONE], [2])) == [[2, 3]]
    assert chosen(Grow(score.momentum)([six()], [NONE], [0])) == [[]]


def test_what_was_just_pruned_competes_unless_excluded():
    pruned = torch.tensor([False, True, False, False, False, False])
    assert chosen(Grow(score.momentum)([six()], [pruned], [2])) == [[1, 3]]
    assert chosen(Grow(score.momentum, candidates="not-just-pruned")([six()], [pruned], [2])) == [[2, 3]]
    assert chosen(Grow(score.momentum, candidates="not-just-pruned")([six()], [pruned], [5])) == [[1, 2, 3, 4, 5]]


def test_never_active_positions_come_first_and_then_the_others():
    layer = six(ever_active=lambda: torch.tensor([True, True, False, True, True, False]))
    grow = Grow(score.momentum, candidates="never-active-first")
    assert chosen(grow([layer], [NONE], [2])) == [[2, 5]]
    assert chosen(grow([layer], [NONE], [3])) == [[2, 3, 5]]


def test_global_growth_ignores_the_split_between_layers():
    layers = [six(), six(momentum=(0, 0, 20, 10, 9, 1), index=1)]
    assert chosen(Grow(score.momentum, select="global")(layers, [NONE, NONE], [3, 0])) == [[], [2, 3, 4]]


def test_units_share_by_mean_score():
    mask = torch.zeros(2, 4, dtype=torch.bool)
    momentum = torch.tensor([[6.0, 6.0, 6.0, 6.0], [8.0, 0.0, 0.0, 0.0]])
    layer = view(torch.zeros(2, 4), mask, momentum)
    grown = Grow(score.momentum, select="neuron")([layer], [mask], [4])[0]
    assert grown.sum(1).tolist() == [3, 1]
    sideways = view(torch.zeros(4, 2), mask.T, momentum.T.contiguous(), output_dim=1)
    assert torch.equal(Grow(score.momentum, select="neuron")([sideways], [mask.T], [4])[0], grown.T)


def test_random_growth_is_a_function_of_seed_and_layer():
    first, same, other, next_layer = (
        chosen(Grow()([six(seed=seed, index=index)], [NONE], [2])) for seed, index in ((0, 0), (0, 0), (5, 0), (0, 3))
    )
    assert first == same
    assert len({str(first), str(other), str(next_layer)}) > 1
