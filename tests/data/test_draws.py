import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regrow.data import draws

KEY = st.integers(-(2**70), 2**70)


def test_values_never_change():
    # A change here changes the data order of every published run.
    assert [int(v) for v in draws.hash64(0, np.arange(3))] == [
        0xA706DD2F4D197E6F,
        0x2A98F501AF37E97F,
        0x82876E1C4F0B438C,
    ]
    assert draws.permutation(8, 1, 2, 3).tolist() == [7, 0, 4, 1, 2, 5, 6, 3]


@given(KEY, KEY, st.integers(0, 1000))
def test_one_draw_equals_the_same_draw_of_many(a, b, index):
    many = draws.hash64(a, b, np.arange(1001))
    assert draws.hash64(a, b, index)[0] == many[index]


@given(KEY, KEY, KEY)
def test_keys_are_ordered(a, b, c):
    distinct = {x % 2**64 for x in (a, b, c)}
    if len(distinct) == 3:
        assert len({int(draws.hash64(*keys)[0]) for keys in ((a, b, c), (b, a, c), (a, c, b), (a, b), (a,))}) == 5


@given(st.integers(0, 300), KEY)
def test_permutation_has_every_number_once(length, seed):
    order = draws.permutation(length, seed)
    assert order.dtype == np.int64
    assert sorted(order.tolist()) == list(range(length))


def test_permutation_places_are_uniform():
    places = np.array([draws.permutation(5, seed).tolist() for seed in range(4000)])
    counts = np.stack([np.bincount(places[:, column], minlength=5) for column in range(5)])
    assert np.abs(counts - 800).max() < 5 * np.sqrt(800)


def test_uniform_and_integers_cover_their_range_evenly():
    values = draws.uniform(3, np.arange(100_000))
    assert values.min() >= 0
    assert values.max() < 1
    assert values.mean() == pytest.approx(0.5, abs=0.005)
    assert values.var() == pytest.approx(1 / 12, abs=0.002)
    counts = np.bincount(draws.integers(7, 3, np.arange(70_000)), minlength=7)
    assert len(counts) == 7
    assert np.abs(counts - 10_000).max() < 500
