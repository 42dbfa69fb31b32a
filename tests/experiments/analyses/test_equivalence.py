"""The first density whose interval overlaps that of the dense network."""

from dataclasses import replace

from regrow.analysis.statistics import Summary
from regrow.experiments.analyses.equivalence import describe
from regrow.experiments.catalogue import find
from regrow.experiments.rows import row_of
from tests.experiments.analyses.fakes import material
from tests.experiments.fakes import finish


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
        text = describe(material("dense-equivalence", tmp_path, [dense, five, ten], [6.5, 6.9, 6.52], rows=rows))
        assert "| vgg16-d | 10 | 6.520 ± 0.010 | 2.00x | not measured | 3.50x | not measured | not measured |" in text
        assert "5%, 3.51x, 1.36x" in text
        assert "the dense network" not in text

    def test_what_the_dense_network_has_by_its_activations_is_said(self, tmp_path):
        dense, five, ten = self.cells()
        rows = self.rows(tmp_path, dense, activations=1.85)[:1]
        text = describe(material("dense-equivalence", tmp_path, [dense, five, ten], [6.5, 6.9, 6.52], rows=rows))
        assert "vgg16-d: the dense network has 1.85x by activations only." in text

    def test_each_execution_has_its_own_verdict(self, tmp_path):
        every = material("dense-equivalence", tmp_path, self.cells(), [6.5, 6.9, 6.52])
        other = replace(every.table[1], execution="sparse", summary=Summary(5, 6.51, 0.01))
        text = describe(replace(every, table=[*every.table, other]))
        assert text.count("| vgg16-d | 10 | 6.520 ± 0.010 |") == text.count("| vgg16-d | 5 | 6.510 ± 0.010 |") == 1
        assert "1.36x | sparse, window 0.001 |" in text

    def test_where_fewer_weights_were_not_tried_fewer_may_do(self, tmp_path):
        dense, five, ten = self.cells()
        ran = material("dense-equivalence", tmp_path, [dense, ten], [6.5, 6.52])
        text = describe(replace(ran, cells=[dense, five, ten]))
        assert "| vgg16-d | at most 10 | 6.520 ± 0.010 |" in text
        assert "decide nothing" not in text

    def test_too_few_runs_decide_nothing(self, tmp_path):
        every = material("dense-equivalence", tmp_path, self.cells(), [6.5, 6.51, 6.52])
        few = replace(every.table[1], summary=Summary(1, 6.51, None), collapsed=1)
        text = describe(replace(every, table=[every.table[0], few, every.table[2]]))
        assert "| vgg16-d | 10 |" in text
        assert "vgg16-d: 5% weights decide nothing, fewer than two runs learned." in text

    def test_not_yet(self, tmp_path):
        assert "| vgg16-d | not yet |" in describe(
            material("dense-equivalence", tmp_path, self.cells(), [6.5, 7.9, 7.5])
        )
