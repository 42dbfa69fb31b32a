"""First masks."""

import torch

from regrow.topology.initial import Setup, at_random, by_magnitude, everything, globally_largest
from tests.support.views import view


def setup(*weights, counts):
    views = [view(torch.tensor(w), torch.ones(len(w)), index=i) for i, w in enumerate(weights)]
    return Setup(views, list(counts), [], 0, torch.nn.Identity(), None, lambda tensor: tensor)


def test_counts_are_exact():
    work = setup([1.0] * 50, [2.0] * 30, counts=(7, 30))
    masks = at_random(work)
    assert [int(m.count_nonzero()) for m in masks] == [7, 30]
    assert all(torch.equal(a, b) for a, b in zip(masks, at_random(work), strict=True))
    assert work.total == 37


def test_everything_and_the_largest():
    work = setup([1.0, -3.0, 2.0], [0.0, 0.5], counts=(2, 1))
    assert all(m.all() for m in everything(work))
    assert [m.tolist() for m in by_magnitude(work)] == [[False, True, True], [False, True]]


def test_globally_largest_keeps_one_of_every_layer():
    work = setup([1.0, -3.0, 2.0], [0.0, 0.5], counts=(2, 1))
    masks = globally_largest(work, [torch.tensor([1.0, 3.0, 2.0]), torch.tensor([0.0, 0.5])], 3)
    assert [m.tolist() for m in masks] == [[False, True, True], [False, True]]
    masks = globally_largest(work, [torch.tensor([1.0, 3.0, 2.0]), torch.tensor([0.0, 0.5])], 2)
    assert [int(m.count_nonzero()) for m in masks] == [1, 1]
