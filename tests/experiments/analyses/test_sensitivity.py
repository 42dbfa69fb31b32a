"""Wilcoxon's test of the momentum sweep, and what it lacks."""

from dataclasses import replace

from regrow.analysis.statistics import Summary
from regrow.experiments.analyses.sensitivity import describe
from regrow.experiments.catalogue import find
from regrow.experiments.experiment import split_label
from tests.experiments.analyses.fakes import material, published


def test_sensitivity_of_the_published_means_gives_w_27(tmp_path):
    text = describe(published("sensitivity", tmp_path))
    assert "W = 27, p = 0.96, 10 pairs" in text
    assert "Levene, equal variance | 0.921" in text
    assert "D'Agostino, normality of log10 dense" in text


def test_sensitivity_waits_for_pairs(tmp_path):
    cells = [c for c in find("sensitivity").cells() if c.label.startswith("prune")]
    assert describe(material("sensitivity", tmp_path, cells, [1.0] * len(cells))) == ""


def without(material, *labels):
    """The same with settings that have no runs."""
    return replace(material, table=[line for line in material.table if line.cell.label not in labels])


def test_sensitivity_says_what_is_missing(tmp_path):
    every = published("sensitivity", tmp_path, "vgg16-d")
    failed = [f"momentum {m:g} {kind}" for m in (0.5, 0.6, 0.7, 0.8, 0.95) for kind in ("sparse", "dense")]
    text = describe(without(every, *failed))
    assert "no test, as no network has results, sparse and dense, at momentum 0.9 and another one below 0.99" in text
    assert all(f"vgg16-d {label}" in text for label in failed)
    assert "momentum 0.99 sparse" not in text
    text = describe(without(every, "momentum 0.8 dense"))
    assert "4 pairs" in text
    assert "Without a result: vgg16-d momentum 0.8 dense.\n" in text
    assert "Without" not in describe(every)


def test_sensitivity_without_any_difference_is_no_test(tmp_path):
    cells = find("sensitivity").cells()
    assert "no test, as all deviations of sparse and dense" in describe(
        material("sensitivity", tmp_path, cells, [6.5] * len(cells))
    )


def test_sensitivity_keeps_executions_apart(tmp_path):
    every = published("sensitivity", tmp_path)
    other = [
        replace(line, execution="sparse", summary=Summary(5, 9.0, 0.1))
        for line in every.table
        if line.cell.label.endswith("sparse")
    ]
    text = describe(replace(every, table=[*every.table, *other]))
    assert "Execution: masked\n\nSensitivity" in text
    assert text.count("W = 27, p = 0.96, 10 pairs") == 1
    assert text.count("Execution: ") == 2


def test_split_label():
    assert split_label("momentum 0.95 dense") == ("momentum", 0.95, "dense")
