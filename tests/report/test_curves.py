from dataclasses import replace

import pytest

from regrow.report import curves
from regrow.report.history import history


def test_learning_curves_show_the_kinds_that_exist(files):
    assert all(kind in curves.accuracy(files) for kind in ("train", "validation", "test"))
    only = replace(files, metrics=files.rows("train"))
    assert "validation" not in curves.loss(only)


@pytest.mark.parametrize("accuracies", [(1.0, 1.0), (0.0, 0.0), (0.5, 0.5), (0.98, 0.985), (0.1, 0.9999)])
def test_accuracy_axis_takes_any_range(files, accuracies):
    rows = [{**files.rows("train")[0], "step": i + 1, "accuracy": a} for i, a in enumerate(accuracies)]
    assert "%" in curves.accuracy(replace(files, metrics=rows))


def test_marks_keep_their_distance():
    assert curves._apart([(0, 0.0), (10, 0.1), (50, 1.0)], 0.5) == [(50, 1.0), (10, 0.1)]


def test_loss_of_zero_and_of_wide_range(files):
    rows = files.rows("train")
    for values in ((0.0, 1.0), (1e-4, 1e3)):
        metrics = [{**row, "loss": loss} for row, loss in zip(rows, values, strict=False)]
        assert "Loss" in curves.loss(replace(files, metrics=metrics))


def test_churn_has_four_measures_and_turnover_both_directions(files):
    past = history(files.journal)
    assert len(curves.churn(past)) == 4
    assert all(word in curves.turnover(past) for word in ("grown", "removed"))
    assert len(curves.schedules(files)) == 2
    assert "Images per second" in curves.throughput(files)
