"""Marks: positions and counts on any layout."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from regrow.marks import count_of, positions


@given(st.integers(0, 2**30), st.sampled_from([torch.contiguous_format, torch.channels_last]), st.floats(0, 1))
def test_positions_are_torch_s_own_in_logical_order(seed, layout, share):
    draws = torch.rand(3, 4, 2, 5, generator=torch.Generator().manual_seed(seed))
    marks = (draws < share).contiguous(memory_format=layout)
    assert torch.equal(positions(marks), marks.reshape(-1).nonzero().squeeze(1))
    assert count_of(marks) == int(marks.sum())


def test_nothing_marked_and_no_entries():
    assert positions(torch.zeros(3, 2, dtype=torch.bool)).tolist() == []
    assert count_of(torch.zeros(0, 2, dtype=torch.bool)) == 0
