"""Selection: exact counts, lowest index wins ties, equal to plain sorting."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regrow import randomness
from regrow.topology.select import at_random, largest, largest_overall, smallest, smallest_overall
from tests.support.examples import examples
from tests.support.oracle import highest, lowest

values = st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=1, max_size=12)


def split(pairs):
    scores, among = zip(*pairs, strict=True)
    return torch.tensor(scores, dtype=torch.float32), torch.tensor(among)


@examples("selection")
@given(values, st.data())
def test_selection_equals_plain_sorting_ties_included(pairs, data):
    scores, among = split(pairs)
    candidates = among.nonzero().squeeze(1).tolist()
    count = data.draw(st.integers(0, len(candidates)))
    assert set(largest(scores, count, among).nonzero().view(-1).tolist()) == highest(scores.tolist(), count, candidates)
    assert set(smallest(scores, count, among).nonzero().view(-1).tolist()) == lowest(scores.tolist(), count, candidates)


def test_selection_over_several_tensors_prefers_the_earlier_one():
    scores = [torch.tensor([1.0, 3.0]), torch.tensor([[3.0], [0.0]]), torch.tensor([3.0])]
    among = [torch.ones_like(s, dtype=torch.bool) for s in scores]
    assert [m.view(-1).tolist() for m in largest_overall(scores, 2, among)] == [[False, True], [True, False], [False]]
    assert [m.view(-1).tolist() for m in smallest_overall(scores, 1, among)] == [[False, False], [False, True], [False]]
    among[0][1] = False
    assert [int(m.count_nonzero()) for m in largest_overall(scores, 2, among)] == [0, 1, 1]


def test_layout_does_not_matter():
    scores = torch.randn(3, 4, 5).transpose(0, 2)
    chosen = largest(scores, 7, torch.ones(5, 4, 3, dtype=torch.bool))
    assert torch.equal(chosen, largest(scores.contiguous(), 7, torch.ones(5, 4, 3, dtype=torch.bool)))
    assert float(scores[chosen].min()) > float(scores[~chosen].max())


def test_more_than_there_is_cannot_be_selected():
    with pytest.raises(ValueError, match="cannot select 3 entries out of 2"):
        largest(torch.ones(4), 3, torch.tensor([True, True, False, False]))
    assert not largest(torch.ones(4), -1, torch.ones(4, dtype=torch.bool)).any()


@given(st.lists(st.booleans(), min_size=1, max_size=20), st.integers(0, 1000), st.data())
def test_a_random_choice_has_the_exact_count_and_stays_among_the_marked(marked, seed, data):
    among = torch.tensor(marked)
    count = data.draw(st.integers(0, int(among.sum())))
    chosen, again = (at_random(count, among, randomness.generator(seed, "grow")) for _ in range(2))
    assert int(chosen.sum()) == count
    assert not (chosen & ~among).any()
    assert torch.equal(chosen, again)


def test_a_random_choice_takes_every_pair_equally_often():
    among = torch.tensor([True, True, False, True, True])
    draws = [tuple(at_random(2, among, randomness.generator(seed)).tolist()) for seed in range(3000)]
    counts = [draws.count(pair) for pair in set(draws)]
    # Six pairs, 500 expected of each, standard deviation 20.
    assert len(counts) == 6
    assert max(abs(count - 500) for count in counts) < 100


def test_more_than_there_are_cannot_be_drawn():
    with pytest.raises(ValueError, match="larger"):
        at_random(3, torch.tensor([True, False]), torch.Generator())
