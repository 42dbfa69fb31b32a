"""One tensor in its layouts: nothing is lost, and nothing that does not fit passes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regrow.errors import StateError
from regrow.shipping.packing import VALUES, Packed, check, matrix_shape, pack, positions, unpack

SHAPES = [(1,), (9,), (1, 1), (3, 8), (8, 3), (5, 17), (4, 2, 3, 3), (2, 3, 5), (0, 4), (4, 0)]


@given(
    st.sampled_from(SHAPES),
    st.sampled_from([0.0, 0.05, 0.3, 0.9, 1.0]),
    st.sampled_from(sorted(VALUES)),
    st.integers(0, 99),
)
def test_round_trip_keeps_values_and_topology(shape, density, kind, seed):
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(shape, generator=generator) < density
    tensor = torch.randn(shape, generator=generator).to(VALUES[kind]).float() * mask
    tensor[mask & (torch.rand(shape, generator=generator) < 0.3)] = 0.0  # present, and zero
    packed = pack(tensor, mask, VALUES[kind])
    check("w", packed)
    full, present = unpack(packed)
    assert torch.equal(full, tensor)
    assert torch.equal(torch.ones_like(mask) if present is None else present, mask)


def test_takes_the_smaller_layout():
    def layout(density):
        return pack(torch.ones(64, 256), torch.rand(64, 256) < density).layout

    assert [layout(d) for d in (0.01, 0.04, 0.1, 0.5)] == ["csr", "csr", "bitmask", "bitmask"]
    assert pack(torch.ones(4, 4), torch.ones(4, 4, dtype=torch.bool)).layout == "dense"


def test_many_columns_need_wider_numbers():
    mask = torch.zeros(2, 70_000, dtype=torch.bool)
    mask[1, 69_999] = mask[0, 3] = True
    packed = pack(torch.ones(2, 70_000), mask)
    assert packed.parts["columns"].dtype == torch.int32
    assert positions(packed).tolist() == [3, 139_999]


def test_channels_last_weights_are_stored_in_ordinary_order():
    tensor = torch.randn(4, 3, 2, 2)
    mask = torch.rand(4, 3, 2, 2) < 0.5
    packed = pack((tensor * mask).to(memory_format=torch.channels_last), mask.to(memory_format=torch.channels_last))
    assert torch.equal(unpack(packed)[0], tensor * mask)


def csr(**changes):
    parts = {
        "values": torch.ones(3),
        "columns": torch.tensor([0, 4, 2], dtype=torch.uint16),
        "counts": torch.tensor([2, 0, 1], dtype=torch.uint16),
    }
    return Packed("csr", (3, 5), {**parts, **changes})


def bits(**changes):
    parts = {"values": torch.ones(2), "mask": torch.tensor([[1], [16]], dtype=torch.uint8)}
    return Packed("bitmask", (2, 5), {**parts, **changes})


def small(*numbers, kind=torch.uint16):
    return torch.tensor(numbers, dtype=kind)


@pytest.mark.parametrize(
    ("packed", "what"),
    [
        (csr(columns=small(0, 5, 2)), "outside 0 ... 4"),
        (csr(columns=small(0, -1, 2, kind=torch.int32)), "outside 0 ... 4"),
        (csr(columns=small(4, 0, 2)), "do not rise"),
        (csr(columns=small(4, 4, 2)), "do not rise"),
        (csr(columns=small(0, 4)), "not 3 whole numbers"),
        (csr(columns=torch.ones(3)), "not 3 whole numbers"),
        (csr(counts=small(2, 1, 1)), "do not add up"),
        (csr(counts=small(3, -1, 1, kind=torch.int32)), "do not add up"),
        (csr(counts=small(2, 1)), "counts are not 3"),
        (csr(values=torch.ones(3, 1)), "not a vector"),
        (csr(values=torch.ones(3, dtype=torch.int64)), "not a vector"),
        (bits(mask=small(1, 16, kind=torch.uint8)), "one bit for each"),
        (bits(mask=torch.tensor([[1], [32]], dtype=torch.uint8)), "behind the end"),
        (bits(mask=torch.tensor([[1], [3]], dtype=torch.uint8)), "3 positions, 2 values"),
        (Packed("dense", (2, 2), {"": torch.ones(4)}), "not (2, 2)"),
        (Packed("coo", (2, 2), {}), "unknown"),
        (Packed("csr", (-1, 2), {}), "impossible"),
        (Packed("csr", (2**40, 2**40), {}), "impossible"),
        (Packed("csr", (), {}), "single number"),
    ],
)
def test_parts_that_do_not_fit_are_refused(packed, what):
    check("w", csr())
    check("w", bits())
    with pytest.raises(StateError, match=what.replace("(", r"\(").replace(")", r"\)")):
        check("w", packed)


def test_matrix_of_a_tensor():
    assert matrix_shape((4, 2, 3, 3)) == (4, 18)
