"""The fastest way through a chain, against trying every assignment."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regrow.execution.choosing.chains import Stage, duration, fastest

_ms = st.integers(0, 20).map(float)
_stages = st.lists(
    st.builds(
        Stage,
        st.just(""),
        _ms,
        st.one_of(st.none(), _ms),
        enter=_ms,
        leave=_ms,
        layer=st.sampled_from([True, True, False]),
    ),
    max_size=7,
).map(lambda stages: [Stage(**{**vars(s), "name": str(i), "chwn": _follow(s)}) for i, s in enumerate(stages)])


def _follow(stage):
    return stage.chwn if stage.layer or stage.chwn is not None else stage.ordinary


@given(_stages)
def test_no_assignment_is_faster(stages):
    able = [s.name for s in stages if s.layer and s.chwn is not None]
    subsets = itertools.chain.from_iterable(itertools.combinations(able, n) for n in range(len(able) + 1))
    best = min(duration(stages, frozenset(subset)) for subset in subsets)
    way = fastest(stages)
    assert way.ms == pytest.approx(best)
    assert duration(stages, way.sparse) == pytest.approx(way.ms)
    assert way.sparse <= set(able)


def test_equal_cost_stays_dense():
    assert fastest([Stage("a", 2.0, 2.0)]).sparse == frozenset()


def test_a_module_that_needs_ordinary_tensors_breaks_the_chain():
    a, b = Stage("a", 5.0, 1.0, enter=1.0, leave=1.0), Stage("b", 5.0, 4.5, enter=1.0, leave=1.0)
    assert fastest([a, b]).sparse == {"a", "b"}
    wall = Stage("embedding", 0.0, None, enter=1.0, leave=1.0)
    assert fastest([a, wall, b]).sparse == {"a"}


def test_modules_between_decide_with_the_layers():
    """Batch norm is so slow on CHWN tensors that the layer before it stays dense."""
    layer, norm = Stage("a", 5.0, 4.0), Stage("norm", 1.0, 9.0, layer=False)
    assert fastest([layer]).sparse == {"a"}
    assert fastest([layer, norm]).sparse == frozenset()


def test_nothing_to_choose():
    assert fastest([]).ms == 0
