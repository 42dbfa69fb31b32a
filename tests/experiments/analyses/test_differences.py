"""The ablation as differences to its first row."""

from dataclasses import replace

from regrow.analysis.statistics import Summary
from regrow.experiments.analyses.differences import describe
from regrow.experiments.catalogue import find
from tests.experiments.analyses.fakes import material, published


def test_ablation_shows_differences_as_the_paper_does(tmp_path):
    text = describe(published("ablation", tmp_path, "lenet5"))
    assert "| lenet5 | momentum / momentum | 5 | 0.690 ± 0.010 | 0.690 ± 0.021 |" in text
    assert "| lenet5 | momentum / random | 5 | -0.050 ± 0.010 | -0.05 ± 0.011 |" in text
    assert "| lenet5 | none / momentum | 5 | +0.320 ± 0.010 | +0.32 ± 0.071 |" in text


def test_without_its_first_row_there_are_no_differences(tmp_path):
    cells = find("ablation").chosen("lenet5", None, None)[1:]
    assert describe(material("ablation", tmp_path, cells, [1.0, 2.0, 3.0])) == ""


def test_differences_are_taken_between_runs_of_the_same_execution(tmp_path):
    every = published("ablation", tmp_path, "lenet5")
    way = "sparse"
    other = [replace(x, execution=way, summary=Summary(3, x.summary.mean + 1, 0.02)) for x in every.table]
    mixed = [line for pair in zip(every.table, other, strict=True) for line in pair]
    text = describe(replace(every, table=mixed))
    assert "| lenet5 (masked) | none / momentum | 5 | +0.320 ± 0.010 | +0.32 ± 0.071 |" in text
    assert f"| lenet5 ({way}) | momentum / momentum | 3 | 1.690 ± 0.020 | 0.690 ± 0.021 |" in text
    assert f"| lenet5 ({way}) | none / momentum | 3 | +0.320 ± 0.020 | +0.32 ± 0.071 |" in text
    assert "+1." not in text
    alone = describe(replace(every, table=[*every.table, other[1]]))
    assert way not in alone, "without its first row there is nothing to compare with"
