"""The exploration record."""

import json
import re

import pytest
import torch

from regrow.errors import StateError
from regrow.topology.journal import Record, distance, layer_record, pack, pack_records, unpack, unpack_records
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
        start=bits("111000"), ever_active=4,
    )  # fmt: skip
    assert (row.layer, row.before, row.removed, row.grown, row.regrown_at_once, row.after) == ("fc", 3, 2, 2, 1, 3)
    assert (row.density, row.momentum_share, row.ever_active) == (0.5, 0.25, pytest.approx(4 / 6))
    assert row.distance_to_start == row.distance_to_previous == pytest.approx(2 / 6)


def test_a_record_survives_json():
    row = layer_record(view(torch.ones(2)), bits("11"), bits("00"), bits("00"), None, bits("11"), 2)
    record = Record(3, 40, 0.2, 2, 1.0, (row,))
    assert Record.from_dict(json.loads(json.dumps(record.as_dict()))) == record


def journal(updates):
    rows = [layer_record(view(torch.ones(2), name=f"layer{i}"), bits("11"), bits("01"), bits("01"), 0.5, bits("11"), 2)
            for i in range(5)]  # fmt: skip
    return [Record(update, 7 * update, 0.2, 10, 1.0, tuple(rows)) for update in range(updates)]


def test_a_packed_journal_is_small_and_comes_back():
    records = journal(50)
    packed = pack_records(records)
    assert unpack_records(packed) == records == unpack_records([record.as_dict() for record in records])
    assert packed.numel() < len(json.dumps([record.as_dict() for record in records])) / 10
    assert unpack_records(pack_records([])) == []


@pytest.mark.parametrize("damage", [
    lambda packed: packed[:-2], lambda packed: packed ^ 1, lambda packed: packed[:0], lambda packed: torch.zeros(9),
])  # fmt: skip
def test_a_damaged_packed_journal_is_refused(damage):
    with pytest.raises(StateError, match="journal is damaged"):
        unpack_records(damage(pack_records(journal(3))))


@pytest.mark.parametrize("value", [None, "1", [], 0.5, float("nan"), 10**400])
def test_a_row_with_a_wrong_number_is_refused(value):
    with pytest.raises((TypeError, ValueError, OverflowError)):
        Record.from_dict({**journal(1)[0].as_dict(), "step": value})


def test_a_packed_bomb_is_refused(monkeypatch):
    monkeypatch.setattr("regrow.topology.journal._LARGEST_JOURNAL", 1000)
    with pytest.raises(StateError, match="larger than any journal"):
        unpack_records(pack_records(journal(20)))


def test_a_printed_journal_is_a_table():
    layer = {
        "before": 3,
        "removed": 2,
        "grown": 1,
        "regrown_at_once": 0,
        "after": 2,
        "density": 0.5,
        "momentum_share": None,
    }
    distances = {"distance_to_start": 0.0, "distance_to_previous": 0.0, "ever_active": 1.0}
    row = {
        "update": 0,
        "step": 30,
        "prune_rate": 0.2,
        "budget": 2,
        "density": 0.5,
        "layers": [{"layer": "fc1", **layer, **distances}],
    }
    journal = unpack_records([row])
    lines = str(journal).splitlines()
    assert lines[0].strip() == "1 topology updates"
    assert re.findall(r"[\w.%]+", lines[4]) == ["0", "30", "0.200", "fc1", "2", "1", "50.00%"]
    assert journal[0].step == 30
