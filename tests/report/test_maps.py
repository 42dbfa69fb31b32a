import pytest

from regrow.report import maps
from regrow.report.history import history
from regrow.topology.journal import Record
from tests.report.test_history import layer, record


def journal(layers, updates):
    return [
        record(u, 10 * u, *(layer(f"layer{i}.conv", 50 + i, 5 + u % 3, 5 + u % 3, 100 + 20 * i) for i in range(layers)))
        for u in range(updates)
    ]


@pytest.mark.parametrize(("layers", "updates"), [(1, 1), (3, 2), (54, 40)])
def test_every_layer_is_named_and_the_picture_grows_with_them(layers, updates):
    past = history(journal(layers, updates))
    for svg in (maps.density_map(past, 10 * updates), maps.flow_map(past, 10 * updates)):
        assert all(f">layer{i}.conv<" in svg for i in range(layers))
        # Maps are pictures: many updates cost no more than few.
        assert len(svg) < 60_000 + 3_000 * layers


def test_bars_carry_the_last_densities_and_the_sum_of_movement():
    moved = [record(0, 10, layer("a", 10, 5, 0, 100), layer("b", 10, 0, 5, 40))]
    assert ">5%<" in maps.density_map(history(moved), 20)
    assert ">37.5%<" in maps.density_map(history(moved), 20)
    flow = maps.flow_map(history(moved), 20)
    assert ">+5<" in flow
    assert ">-5<" in flow or ">−5<" in flow  # noqa: RUF001


def test_equal_densities_and_updates_at_step_zero():
    still = [Record(0, 0, 0.1, 10, 0.1, (layer("a", 10, 1, 1, 100),))]
    assert "density" in maps.density_map(history(still), 0)
    assert "net movement" in maps.flow_map(history(still), 0)


def test_densities_that_never_changed():
    assert ">25%<" in maps.density_bars(["a", "b"], [0.25, 1.0])
