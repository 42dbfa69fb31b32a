"""Positions as bytes."""

import pytest
import torch

from regrow import native
from regrow.errors import StateError
from regrow.gaps import count, decode, encode


@pytest.fixture(params=["native", "numpy"], autouse=True)
def way(request, monkeypatch):
    """With native code, and without."""
    if request.param == "numpy":
        monkeypatch.setattr(native, "available", lambda: False)
    elif not native.available():
        pytest.skip("the native kernels are not built here")


@pytest.mark.parametrize("size", [1, 127, 128, 129, 20_000, 2**31 + 5, 2**40])
def test_round_trip(size):
    source = torch.Generator().manual_seed(size % 1000)
    found = torch.unique(torch.randint(0, size, (500,), generator=source))
    for positions in (
        found,
        torch.tensor([size - 1]),
        torch.tensor([0, size - 1]).unique(),
        torch.empty(0, dtype=torch.int64),
    ):
        assert torch.equal(decode(encode(positions), size), positions)


def test_a_byte_each_where_gaps_are_short():
    positions = torch.arange(0, 100_000, 20)
    assert len(encode(positions)) == len(positions)


@pytest.mark.parametrize(
    "code",
    [[128], [1, 200], [255] * 10 + [1], [0, 0, 0, 0, 0], [255, 255, 255, 255, 255, 255, 255, 255, 127]],
    ids=str,
)
def test_damage_is_refused(code):
    with pytest.raises(StateError, match="saved positions"):
        decode(torch.tensor(code, dtype=torch.uint8), 4)


def test_both_ways_write_the_same_bytes(monkeypatch):
    positions = torch.tensor([0, 1, 200, 20_000, 2**40])
    coded = encode(positions)
    monkeypatch.setattr(native, "available", lambda: False)
    assert torch.equal(coded, encode(positions))


def test_positions_are_counted_without_a_list_of_them():
    for positions in ([], [0], [127, 128, 300], [0, 1, 2, 10**12]):
        assert count(encode(torch.tensor(positions, dtype=torch.int64))) == len(positions)
