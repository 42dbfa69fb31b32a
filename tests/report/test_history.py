import numpy as np
import pytest

from regrow.report.history import history
from regrow.topology.journal import LayerRecord, Record


def layer(name, before, removed, grown, numel, start=0.0, previous=0.0, ever=0.0, again=0):
    after = before - removed + grown
    return LayerRecord(name, before, removed, grown, again, after, after / numel, None, start, previous, ever)


def record(number, step, *layers):
    total = sum(row.after for row in layers)
    return Record(number, step, 0.2, total, 0.1, layers)


JOURNAL = [
    record(0, 10, layer("a", 10, 4, 2, 100, 0.2, 0.2, 0.12), layer("b", 10, 2, 4, 50, 0.4, 0.4, 0.28, again=1)),
    record(1, 20, layer("a", 8, 2, 2, 100, 0.3, 0.1, 0.14), layer("b", 12, 3, 3, 50, 0.5, 0.2, 0.34)),
]


def test_counts_start_before_the_first_update():
    past = history(JOURNAL)
    assert past.layers == ("a", "b")
    assert past.sizes.tolist() == [100, 50]
    assert past.steps.tolist() == [0, 10, 20]
    assert past.counts.tolist() == [[10, 10], [8, 12], [8, 12]]
    assert past.net.tolist() == [[-2, 2], [0, 0]]
    assert past.densities[-1].tolist() == [0.08, 0.24]


def test_totals_treat_all_layers_as_one_mask():
    totals = history(JOURNAL).totals()
    # Distances weigh with the entries they compare, so that the sum is the distance of the joined masks.
    assert totals["to_previous"][0] == pytest.approx((0.2 * 18 + 0.4 * 22) / 40)
    assert totals["to_start"][1] == pytest.approx((0.3 * 18 + 0.5 * 22) / 40)
    assert totals["ever_active"].tolist() == pytest.approx([(12 + 14) / 150, (14 + 17) / 150])
    assert totals["regrown"].tolist() == pytest.approx([1 / 6, 0])


def test_a_frozen_layer_keeps_its_count():
    past = history([*JOURNAL, record(2, 30, layer("b", 12, 6, 6, 50))])
    assert past.counts[-1].tolist() == [8, 12]
    assert past.removed[-1].tolist() == [0, 6]
    assert past.ever_active[-1][0] == 0.14


def test_an_empty_journal_has_no_history():
    assert history([]) is None


def test_a_run_without_removals_divides_by_nothing():
    past = history([record(0, 1, layer("a", 5, 0, 0, 10))])
    assert np.isfinite(past.totals()["regrown"]).all()
