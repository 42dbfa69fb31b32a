"""The exploration record."""

import json

import pytest
import torch

from regrow.topology.journal import Record, distance, layer_record, pack, unpack
from tests.support.views import bits, view


@pytest.mark.parametrize("shape", [(1,), (8,), (3, 5), (2, 3, 4, 1)])
def test_packing_is_lossless_and_one_bit_per_weight(shape):
    mask = torch.rand(shape) < 0.4
    assert torch.equal(unpack(pack(mask), mask.shape), mask)
    assert pack(mask).numel() == (mask.numel() + 7) // 8


def test_distance_goes_from_equal_to_disjoint():
    assert distance(bits("1100"), bits("1100")) == 0.0
    assert distance(bits("1100"), bits("0011")) == 1.0
    assert distance(bits("1100"), bits("0110")) == 0.5
    assert distance(bits("0000"), bits("0000")) == 0.0


def test_a_layers_record_counts_what_happened():
    before, after = bits("111000"), bits("101100")
    row = layer_record(
        view(torch.ones(6), before, name="fc"), after, removed=bits("011000"), grown=bits("001100"), share=0.25,
        start=bits("111000"), ever=bits("111100"),
    )  # fmt: skip
    assert (row.layer, row.before, row.removed, row.grown, row.regrown_at_once, row.after) == ("fc", 3, 2, 2, 1, 3)
    assert (row.density, row.momentum_share, row.ever_active) == (0.5, 0.25, pytest.approx(4 / 6))
    assert row.distance_to_start == row.distance_to_previous == pytest.approx(2 / 6)


def test_a_record_survives_json():
    row = layer_record(view(torch.ones(2)), bits("11"), bits("00"), bits("00"), None, bits("11"), bits("11"))
    record = Record(3, 40, 0.2, 2, 1.0, (row,))
    assert Record.from_dict(json.loads(json.dumps(record.as_dict()))) == record
