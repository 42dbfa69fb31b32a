"""Marks: positions and counts on any layout."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regrow import native
from regrow.marks import Marks, count_of, placed, places, positions


@pytest.fixture(params=["native", "torch"])
def way(request, monkeypatch):
    """With native code, and without."""
    if request.param == "torch":
        monkeypatch.setattr(native, "available", lambda: False)
    elif not native.available():
        pytest.skip("the native kernels are not built here")


@given(st.integers(0, 2**30), st.sampled_from([torch.contiguous_format, torch.channels_last]), st.floats(0, 1))
def test_positions_are_torch_s_own_in_logical_order(seed, layout, share):
    draws = torch.rand(3, 4, 2, 5, generator=torch.Generator().manual_seed(seed))
    marks = (draws < share).contiguous(memory_format=layout)
    assert torch.equal(positions(marks), marks.reshape(-1).nonzero().squeeze(1))
    assert count_of(marks) == int(marks.sum())


def test_nothing_marked_and_no_entries():
    assert positions(torch.zeros(3, 2, dtype=torch.bool)).tolist() == []
    assert count_of(torch.zeros(0, 2, dtype=torch.bool)) == 0


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("seed", range(8))
def test_marks_are_sets(seed):
    source = torch.Generator().manual_seed(seed)
    a, b = (torch.rand(5, 7, generator=source) < share for share in (0.3, 0.6))
    one, two = (Marks(m.shape, positions(m)) for m in (a, b))
    pairs = [(a & b, one & two), (a | b, one | two), (~a & b, ~one & two), (a & ~b, one & ~two), (~a | ~b, ~one | ~two)]
    for dense, marks in [*pairs, (~(a | b), ~(one | two))]:
        assert torch.equal(marks.dense(), dense)
        assert torch.equal(marks.positions, positions(dense))
        assert count_of(marks) == count_of(dense)
        assert all((i in marks) == bool(dense.view(-1)[i]) for i in range(35))


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("wanted", [[4, 4, 9, 100], [100, 9, 5, 4, 9], [], [0]])
def test_places_of_positions_in_any_order(wanted):
    listed = torch.tensor([4, 5, 9, 70])
    expected = [listed.tolist().index(one) if one in listed.tolist() else -1 for one in wanted]
    assert places(listed, torch.tensor(wanted, dtype=torch.int64)).tolist() == expected
    assert places(listed[:0], listed).tolist() == [-1] * 4


@pytest.mark.usefixtures("way")
def test_values_are_placed_where_they_are_known():
    found = placed(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2, 5, 9]), torch.tensor([0, 5, 9, 10]))
    assert found.tolist() == [0.0, 2.0, 3.0, 0.0]
