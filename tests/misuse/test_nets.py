"""Random networks, sparse against masked."""

import pytest

from regrow import native
from tests.misuse import nets

pytestmark = pytest.mark.skipif(not native.available(), reason="native kernels not built")


def test_a_sample_of_networks():
    found = [nets.judged(seed) for seed in range(6)]
    assert "wrong" not in found
    assert found.count("same") >= 4


def test_a_sample_of_networks_in_compact_storage():
    found = [nets.compact_agrees(seed) for seed in range(8)]
    assert False not in found
    assert found.count(True) >= 4


def test_a_tie_by_construction_is_traced():
    """Two gradients of a kernel on maps with constant borders are equal whatever the weights: only rounding tells them apart."""
    assert nets.judged(100_939) == "traced"
    assert nets.judged(101_851) == "traced"  # means behind a batch norm nearly cancel


def test_a_wrong_number_is_noticed(monkeypatch):
    """The judge itself: a sparse run with another first weight is neither the same nor traced."""
    plain = nets.run

    def spoiled(seed, execution, *move):
        numbers = plain(seed, execution, *move)
        if execution == "sparse":
            numbers[0] = numbers[0] + 1e-3
        return numbers

    monkeypatch.setattr(nets, "run", spoiled)
    assert nets.judged(1) == "wrong"
