"""Figures: one per model, drawn for every kind of experiment and for poor data."""

import random
from dataclasses import replace

import pytest

from regrow.experiments.catalogue import EXPERIMENTS
from regrow.experiments.figures import draw
from regrow.experiments.statistics import Summary
from regrow.experiments.tables import Line


def lines(experiment, se=0.03):
    random.seed(0)
    one = experiment.cells()[0].model
    cells = [cell for cell in experiment.cells() if cell.model == one]
    means = [(c.target.error if c.target else 13.0) * random.uniform(0.97, 1.03) for c in cells]
    return [Line(c, Summary(5, mean, se), "masked, window 0.001") for c, mean in zip(cells, means, strict=True)]


@pytest.fixture
def drawn(monkeypatch):
    """The figures, kept instead of written."""
    kept = []
    monkeypatch.setattr("regrow.experiments.figures.save", lambda figure, stem: kept.append(figure) or [stem])
    return kept


def labels(figure):
    shown = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    return shown + [t.get_text() for axes in figure.axes if axes.get_legend() for t in axes.get_legend().get_texts()]


@pytest.mark.parametrize("name", ["mnist-methods", "ablation", "sensitivity", "mnist-compression"])
def test_every_kind_shows_ours_and_the_papers(tmp_path, drawn, name):
    draw(EXPERIMENTS[name], lines(EXPERIMENTS[name]), tmp_path)
    (figure,) = drawn
    shown = labels(figure)
    assert any(label.endswith("ours") for label in shown)
    assert any(label.endswith("paper") for label in shown)


def test_compression_has_a_log_axis_and_the_competitors(tmp_path, drawn):
    draw(EXPERIMENTS["mnist-compression"], lines(EXPERIMENTS["mnist-compression"]), tmp_path)
    (axes,) = drawn[0].axes
    assert axes.get_xscale() == "log"
    assert "SNIP (Lee 2019)" in labels(drawn[0])
    assert "1" in [tick.get_text() for tick in axes.get_xticklabels()]


def test_momentum_099_is_left_out(tmp_path, drawn):
    draw(EXPERIMENTS["sensitivity"], lines(EXPERIMENTS["sensitivity"]), tmp_path)
    right = drawn[0].axes[1]
    assert right.get_xlim()[1] < 0.99


def test_single_runs_without_targets_and_real_files(tmp_path):
    experiment = EXPERIMENTS["cifar-wrn28"]
    poor = [
        replace(line, cell=replace(line.cell, target=None), summary=Summary(1, 5.0, None))
        for line in lines(experiment)[:2]
    ]
    written = draw(experiment, poor, tmp_path)
    assert all(path.stat().st_size > 1000 for path in written)


def test_other_executions_get_curves_of_their_own(tmp_path, drawn):
    experiment = EXPERIMENTS["cifar-wrn28"]
    table = lines(experiment)[1:3]
    both = table + [replace(line, execution="sparse, window 0.001") for line in table]
    draw(experiment, both, tmp_path)
    assert any("(sparse), ours" in label for label in labels(drawn[0]))


def test_the_same_rows_give_the_same_files_and_what_never_learned_has_no_point(tmp_path):
    experiment = EXPERIMENTS["ablation"]
    table = lines(experiment)
    with_collapsed = [*table, replace(table[0], summary=Summary(0, float("nan"), None), collapsed=5)]
    texts = [path.read_bytes() for shown in (table, with_collapsed) for path in draw(experiment, shown, tmp_path)]
    assert texts[:2] == texts[2:]
