"""What experiments show besides their table."""

from dataclasses import replace

import pytest

from regrow.analysis.features import Comparison, LayerTest
from regrow.analysis.statistics import Summary
from regrow.experiments.catalogue import find
from regrow.experiments.experiment import split_label
from regrow.experiments.extras import Material, describe_features, differences, equivalence, overhead, run, sensitivity
from regrow.experiments.rows import row_of
from regrow.experiments.tables import Line
from tests.experiments.fakes import finish


def material(name, tmp_path, cells, means, se=0.01, rows=()):
    ways = ["dense" if c.config.sparse.method == "dense" else "masked, window 0.001" for c in cells]
    table = [Line(c, Summary(5, mean, se), way) for c, mean, way in zip(cells, means, ways, strict=True)]
    return Material(find(name), cells, [0], table, rows, tmp_path, tmp_path)


def published(name, tmp_path, model=None):
    cells = find(name).chosen(model, None, None)
    return material(name, tmp_path, cells, [c.target.error for c in cells])


def test_ablation_shows_differences_as_the_paper_does(tmp_path):
    text = differences(published("ablation", tmp_path, "lenet5"))
    assert "| lenet5 | momentum / momentum | 5 | 0.690 ± 0.010 | 0.690 ± 0.021 |" in text
    assert "| lenet5 | momentum / random | 5 | -0.050 ± 0.010 | -0.05 ± 0.011 |" in text
    assert "| lenet5 | none / momentum | 5 | +0.320 ± 0.010 | +0.32 ± 0.071 |" in text


def test_without_its_first_row_there_are_no_differences(tmp_path):
    cells = find("ablation").chosen("lenet5", None, None)[1:]
    assert differences(material("ablation", tmp_path, cells, [1.0, 2.0, 3.0])) == ""


def test_differences_are_taken_between_runs_of_the_same_execution(tmp_path):
    every = published("ablation", tmp_path, "lenet5")
    way = "sparse, window 0.001"
    other = [replace(x, execution=way, summary=Summary(3, x.summary.mean + 1, 0.02)) for x in every.table]
    mixed = [line for pair in zip(every.table, other, strict=True) for line in pair]
    text = differences(replace(every, table=mixed))
    assert "| lenet5 (masked, window 0.001) | none / momentum | 5 | +0.320 ± 0.010 | +0.32 ± 0.071 |" in text
    assert f"| lenet5 ({way}) | momentum / momentum | 3 | 1.690 ± 0.020 | 0.690 ± 0.021 |" in text
    assert f"| lenet5 ({way}) | none / momentum | 3 | +0.320 ± 0.020 | +0.32 ± 0.071 |" in text
    assert "+1." not in text
    alone = differences(replace(every, table=[*every.table, other[1]]))
    assert way not in alone, "without its first row there is nothing to compare with"


def test_sensitivity_of_the_published_means_gives_w_27(tmp_path):
    text = sensitivity(published("sensitivity", tmp_path))
    assert "W = 27, p = 0.96, 10 pairs" in text
    assert "Levene, equal variance | 0.921" in text
    assert "D'Agostino, normality of log10 dense" in text


def test_sensitivity_waits_for_pairs(tmp_path):
    cells = [c for c in find("sensitivity").cells() if c.label.startswith("prune")]
    assert sensitivity(material("sensitivity", tmp_path, cells, [1.0] * len(cells))) == ""


def without(material, *labels):
    """The same with settings that have no runs."""
    return replace(material, table=[line for line in material.table if line.cell.label not in labels])


def test_sensitivity_says_what_is_missing(tmp_path):
    every = published("sensitivity", tmp_path, "vgg16-d")
    failed = [f"momentum {m:g} {kind}" for m in (0.5, 0.6, 0.7, 0.8, 0.95) for kind in ("sparse", "dense")]
    text = sensitivity(without(every, *failed))
    assert "no test, as no network has results, sparse and dense, at momentum 0.9 and another one below 0.99" in text
    assert all(f"vgg16-d {label}" in text for label in failed)
    assert "momentum 0.99 sparse" not in text
    text = sensitivity(without(every, "momentum 0.8 dense"))
    assert "4 pairs" in text
    assert "Without a result: vgg16-d momentum 0.8 dense.\n" in text
    assert "Without" not in sensitivity(every)


def test_sensitivity_without_any_difference_is_no_test(tmp_path):
    cells = find("sensitivity").cells()
    assert "no test, as all deviations of sparse and dense" in sensitivity(
        material("sensitivity", tmp_path, cells, [6.5] * len(cells))
    )


def test_sensitivity_keeps_executions_apart(tmp_path):
    every = published("sensitivity", tmp_path)
    other = [
        replace(line, execution="sparse, window 0.001", summary=Summary(5, 9.0, 0.1))
        for line in every.table
        if line.cell.label.endswith("sparse")
    ]
    text = sensitivity(replace(every, table=[*every.table, *other]))
    assert "Execution: masked, window 0.001\n\nSensitivity" in text
    assert text.count("W = 27, p = 0.96, 10 pairs") == 1
    assert text.count("Execution: ") == 2


def test_texts_are_written_too(tmp_path):
    (text,) = run(published("sensitivity", tmp_path))
    assert (tmp_path / "wilcoxon.md").read_text() == text
    assert run(published("cifar-wrn28", tmp_path)) == []


def test_overhead_is_dense_time_over_sparse_time(tmp_path):
    cells = find("mnist-compression").chosen("lenet300", [1.0, 0.05], None)
    rows = []
    for cell, seconds in zip(cells, ((9.0, 11.0), (10.0, 12.5)), strict=True):
        for job, value in zip(cell.jobs([0, 1]), seconds, strict=True):
            finish(job, tmp_path)
            rows.append({**row_of(job.config, tmp_path / job.key), "seconds": value})
    sparse = {**rows[-1], "execution": "sparse", "seconds": 1.0}
    text = overhead(material("mnist-compression", tmp_path, cells, [1.0, 2.0], rows=[*rows, sparse]))
    assert "| lenet300 | 2 / 2 | 0.900 ± 0.100 |" in text
    assert overhead(material("mnist-compression", tmp_path, cells[:1], [1.0], rows=rows[:2])) == ""


def test_split_label():
    assert split_label("momentum 0.95 dense") == ("momentum", 0.95, "dense")


class TestEquivalence:
    def cells(self):
        return find("dense-equivalence").chosen("vgg16-d", [1.0, 0.05, 0.1], None)

    def rows(self, tmp_path, cell, **speedups):
        (job,) = cell.jobs([0])
        finish(job, tmp_path, speedup=speedups)
        row = row_of(job.config, tmp_path / job.key)
        return [row, {**row, "execution": "sparse", "speedup_both": 9.9}]

    def test_the_first_density_that_overlaps_with_its_speedups(self, tmp_path):
        dense, five, ten = self.cells()
        rows = self.rows(tmp_path, ten, both=3.5, weights=2.0, empty_channels=None)
        text = equivalence(material("dense-equivalence", tmp_path, [dense, five, ten], [6.5, 6.9, 6.52], rows=rows))
        assert "| vgg16-d | 10 | 6.520 ± 0.010 | 2.00x | not measured | 3.50x | not measured | not measured |" in text
        assert "5%, 3.51x, 1.36x" in text

    def test_each_execution_has_its_own_verdict(self, tmp_path):
        every = material("dense-equivalence", tmp_path, self.cells(), [6.5, 6.9, 6.52])
        other = replace(every.table[1], execution="sparse, window 0.001", summary=Summary(5, 6.51, 0.01))
        text = equivalence(replace(every, table=[*every.table, other]))
        assert text.count("| vgg16-d | 10 | 6.520 ± 0.010 |") == text.count("| vgg16-d | 5 | 6.510 ± 0.010 |") == 1
        assert "1.36x | sparse, window 0.001 |" in text

    def test_not_yet(self, tmp_path):
        assert "| vgg16-d | not yet |" in equivalence(
            material("dense-equivalence", tmp_path, self.cells(), [6.5, 7.9, 7.5])
        )


def test_features_stand_beside_the_papers():
    names = [f"relu{number}" for number in range(1, 6)]
    comparison = Comparison(
        LayerTest("all", 1200, 800, 0.2, 0.18, 30.0, 4e-8),
        [LayerTest(name, 240, 160, 0.15, 0.14, 2.5, 0.11, 0.55) for name in names],
    )
    text = describe_features("alexnet-s", comparison)
    assert (
        "Paper: H = 4.43, p = 0.035. The channels that its authors stored, 1214 / 813, give H = 31.68, p = 1.8e-08.\n"
        in text
    )
    assert "| all | 1200 / 800 | 0.2000 / 0.1800 | 30.00 | 4e-08 |  | 0.1973 / 0.1800 |" in text
    assert "| relu5 | 240 / 160 | 0.1500 / 0.1400 | 2.50 | 0.11 | 0.55 | 0.2927 / 0.2496 |" in text
    assert "Paper" not in describe_features("another network", comparison)


@pytest.mark.parametrize("name", ["ablation", "sensitivity", "dense-equivalence", "features"])
def test_nothing_finished_is_nothing_to_say(tmp_path, name):
    assert run(Material(find(name), find(name).cells(), [0], [], [], tmp_path, tmp_path)) == []
