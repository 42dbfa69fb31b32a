"""Figures: one per model, drawn for every kind of experiment and for poor data."""

import random
from dataclasses import replace

import pytest

from regrow.analysis.statistics import Summary
from regrow.experiments.catalogue import EXPERIMENTS
from regrow.experiments.figures import draw
from regrow.experiments.points import NAMES
from regrow.experiments.tables import Line
from regrow.experiments.targets import COMPETITORS


def lines(experiment, se=0.03):
    random.seed(0)
    one = experiment.cells()[0].model
    cells = [cell for cell in experiment.cells() if cell.model == one]
    means = [(c.target.error if c.target else 13.0) * random.uniform(0.97, 1.03) for c in cells]
    return [Line(c, Summary(5, mean, se), "masked") for c, mean in zip(cells, means, strict=True)]


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


def test_two_readings_of_a_setting_share_one_curve_of_the_paper(tmp_path, drawn):
    draw(EXPERIMENTS["mnist-methods"], lines(EXPERIMENTS["mnist-methods"]), tmp_path)
    shown = [label for label in labels(drawn[0]) if label.startswith("sparse-momentum")]
    assert sorted(label.rpartition(", ")[2] for label in shown) == ["ours", "ours", "paper"]


def test_compression_has_a_log_axis_and_the_competitors(tmp_path, drawn):
    draw(EXPERIMENTS["mnist-compression"], lines(EXPERIMENTS["mnist-compression"]), tmp_path)
    (axes,) = drawn[0].axes
    assert axes.get_xscale() == "log"
    assert "SNIP (Lee 2019)" in labels(drawn[0])
    assert "1" in [tick.get_text() for tick in axes.get_xticklabels()]


def test_methods_have_one_entry_filled_where_run_and_open_where_published(tmp_path, drawn):
    draw(EXPERIMENTS["mnist-compression"], lines(EXPERIMENTS["mnist-compression"]), tmp_path)
    shown = labels(drawn[0])
    assert shown.count("Optimal brain damage (LeCun 1989)") == 1
    assert shown[-2:] == ["filled: run here, 10 epochs, and 95% interval", "open: published"]
    assert len(shown) == len(set(shown))
    (axes,) = drawn[0].axes
    single = [line for line in axes.lines if line.get_linestyle() == "None" and len(line.get_xdata())]
    published = [tuple(point) for line in single if line.get_mfc() == "white" for point in line.get_xydata()]
    assert (8.0, 2.0) in published, "OBD's point of the paper"
    assert (10.0, 1.8) in published, "L0's point, which the paper has not"


def test_every_compression_method_of_the_experiment_has_a_name_in_the_figure():
    cells = EXPERIMENTS["mnist-compression"].cells()
    assert {cell.label for cell in cells} - {"dense", "sparse momentum"} <= set(NAMES)
    known = {name for points in COMPETITORS.values() for name, *_ in points}
    assert known - set(NAMES.values()) == {"SNIP (Lee 2019)", "Weights and connections (Han 2015)"}


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


def test_other_executions_get_curves_of_their_own_and_the_paper_has_one(tmp_path, drawn):
    experiment = EXPERIMENTS["cifar-wrn28"]
    table = lines(experiment)[1:3]
    both = table + [replace(line, execution="sparse") for line in table]
    for shown in (both, both[2:]):
        draw(experiment, shown, tmp_path)
        names = [label for label in labels(drawn.pop()) if label.startswith(f"{table[0].cell.label}")]
        assert f"{table[0].cell.label} (sparse), ours" in names
        assert [name for name in names if name.endswith("paper")] == [f"{table[0].cell.label}, paper"]
        assert len(names) == 1 + len(shown) // 2


def curve(axes, label):
    """x and y of the points behind a label of the legend."""
    handles, names = axes.get_legend_handles_labels()
    return [list(values) for values in handles[names.index(label)].lines[0].get_data()]


def test_a_part_of_the_runs_stands_beside_the_papers_whole_curves(tmp_path, drawn):
    experiment = EXPERIMENTS["mnist-methods"]
    cells = [cell for cell in experiment.cells() if cell.label == "set (lenet300)"]
    draw(experiment, [Line(cells[1], Summary(5, 2.0, 0.1), "sparse")], tmp_path)
    (axes,) = drawn[0].axes
    assert len(curve(axes, "set (sparse), ours")[0]) == 1
    assert curve(axes, "set, paper")[1] == pytest.approx([cell.target.error for cell in cells])
    assert len(curve(axes, "deep-r, paper")[0]) == 6
    assert "dense, paper" in labels(drawn[0])
    assert "dense, ours" not in labels(drawn[0])


def test_a_part_of_the_rows_stands_beside_all_rows_of_the_paper(tmp_path, drawn):
    draw(EXPERIMENTS["ablation"], lines(EXPERIMENTS["ablation"])[:1], tmp_path)
    (axes,) = drawn[0].axes
    names = [tick.get_text() for tick in axes.get_yticklabels()]
    assert names[:2] == ["momentum / momentum  5%  (n = 5)", "momentum / random  5%  (paper only)"]
    assert len(names) == 4
    assert len(curve(axes, "ours")[0]) == 1


def test_a_part_of_the_sensitivity_stands_beside_the_papers_whole_curves(tmp_path, drawn):
    table = [line for line in lines(EXPERIMENTS["sensitivity"]) if " 0.9 " in line.cell.label]
    draw(EXPERIMENTS["sensitivity"], table, tmp_path)
    left, right = drawn[0].axes
    assert [len(curve(right, label)[0]) for label in ("sparse, ours", "sparse, paper", "dense, paper")] == [1, 6, 6]
    assert len(curve(left, "linear, paper")[0]) == 6


def test_the_papers_dense_line_has_a_band(tmp_path, drawn):
    experiment = EXPERIMENTS["mnist-compression"]
    draw(experiment, lines(experiment), tmp_path)
    (axes,) = drawn[0].axes
    heights = [(patch.get_y(), patch.get_height()) for patch in axes.patches]
    assert len(heights) == 2
    assert heights[1] == pytest.approx((1.34 - 1.96 * 0.011, 2 * 1.96 * 0.011))


def collapsed(line):
    return replace(line, summary=Summary(0, float("nan"), None), collapsed=5)


def test_what_never_learned_has_no_point_but_a_note(tmp_path, drawn):
    first, second, *rest = lines(EXPERIMENTS["ablation"])
    draw(EXPERIMENTS["ablation"], [first, collapsed(second), *rest], tmp_path)
    (axes,) = drawn[0].axes
    assert axes.get_title(loc="left").splitlines()[1:] == ["collapsed: momentum / random (5 of 5)"]
    assert len(curve(axes, "ours")[0]) == 3
    dense, thin, thicker, *_ = lines(EXPERIMENTS["mnist-compression"])
    draw(EXPERIMENTS["mnist-compression"], [dense, collapsed(thin), collapsed(thicker)], tmp_path)
    note = drawn[1].axes[0].get_title(loc="left")
    assert note.endswith("\ncollapsed: sparse momentum 1% (5 of 5), 1.5% (5 of 5)")
    draw(EXPERIMENTS["mnist-compression"], [collapsed(dense)], tmp_path)
    assert len(drawn) == 2, "there is nothing of ours to draw"


def test_the_same_rows_give_the_same_files(tmp_path):
    experiment = EXPERIMENTS["ablation"]
    texts = [path.read_bytes() for _ in range(2) for path in draw(experiment, lines(experiment), tmp_path)]
    assert texts[:2] == texts[2:]
