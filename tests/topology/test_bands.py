"""The running choice of the best is the choice at once."""

import numpy as np
import pytest
import torch

from regrow.marks import Marks, positions
from regrow.support import Support
from regrow.topology.bands import BandScores, CompactView
from regrow.topology.score import scores_of
from regrow.topology.select import _ranks, at_random, largest, largest_overall


class Evidence:
    reach = None

    def __init__(self, gradient, bands):
        self._gradient, self.bands, self._rows = gradient, bands, slice(None)

    def band(self, rows):
        part = Evidence(self._gradient, self.bands)
        part._rows = rows
        return part

    def gradient(self):
        return self._gradient[self._rows]


def layer(scores, mask, rows):
    bands = [slice(i, min(i + rows, len(mask))) for i in range(0, len(mask), rows)]
    marks = Marks(mask.shape, positions(mask))
    weight = torch.ones(marks.count)
    return CompactView("layer", 0, weight, weight.bool(), Evidence(scores, bands), None, support=Support(marks))


def gradient(view):
    return view.gradient


@pytest.mark.parametrize("rows", [1, 2, 3, 50])
@pytest.mark.parametrize("seed", range(6))
def test_top_k_with_ties_is_exact(rows, seed):
    source = torch.Generator().manual_seed(seed)
    scores = torch.randint(0, 6, (11, 9), generator=source).float()  # many ties
    mask = torch.rand(11, 9, generator=source) < 0.4
    view = layer(scores, mask, rows)
    banded = BandScores(gradient, view, scores_of)
    room = ~view.before
    for count in (0, 1, 7, int((~mask).sum())):
        assert torch.equal(largest(banded, count, room).dense(), largest(scores, count, ~mask))
    other = layer(scores.flip(0), mask, rows)
    both = largest_overall([banded, BandScores(gradient, other, scores_of)], 13, [room, room])
    at_once = largest_overall([scores, scores.flip(0)], 13, [~mask, ~mask])
    assert all(torch.equal(a.dense(), b) for a, b in zip(both, at_once, strict=True))


def test_too_few_candidates_are_an_error():
    view = layer(torch.ones(3, 3), torch.ones(3, 3, dtype=torch.bool), 1)
    with pytest.raises(ValueError, match="cannot select 1"):
        largest(BandScores(gradient, view, scores_of), 1, ~view.before)


@pytest.mark.parametrize("density", [0.02, 0.5, 0.97])
@pytest.mark.parametrize("count", [0, 1, 40, 200])
def test_random_draws_are_those_of_masks(density, count):
    mask = torch.rand(120, 100, generator=torch.Generator().manual_seed(3)) < density
    marks = Marks(mask.shape, positions(mask))
    count = min(count, int((~mask).sum()))
    dense = at_random(count, ~mask, torch.Generator().manual_seed(7))
    assert torch.equal(at_random(count, ~marks, torch.Generator().manual_seed(7)).dense(), dense)


@pytest.mark.parametrize(("total", "count"), [(20_000, 3000), (20_000, 20_000), (10_001, 501), (10_001, 500), (30, 30)])
def test_ranks_are_numpys(total, count):
    expected = np.random.default_rng(5).choice(total, count, replace=False, shuffle=False)
    assert set(_ranks(np.random.default_rng(5), total, count)) == set(expected)
