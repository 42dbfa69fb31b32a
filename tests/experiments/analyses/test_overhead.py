"""Time of whole runs against dense ones."""

from regrow.experiments.analyses.overhead import describe
from regrow.experiments.catalogue import find
from regrow.experiments.rows import row_of
from tests.experiments.analyses.fakes import material
from tests.experiments.fakes import finish


def test_overhead_is_dense_time_over_sparse_time(tmp_path):
    cells = find("mnist-compression").chosen("lenet300", [1.0, 0.05], None, ["dense", "sparse momentum"])
    rows = []
    for cell, seconds in zip(cells, ((9.0, 11.0), (10.0, 12.5)), strict=True):
        for job, value in zip(cell.jobs([0, 1]), seconds, strict=True):
            finish(job, tmp_path)
            rows.append({**row_of(job.config, tmp_path / job.key), "seconds": value})
    sparse = {**rows[-1], "execution": "sparse", "seconds": 1.0}
    text = describe(material("mnist-compression", tmp_path, cells, [1.0, 2.0], rows=[*rows, sparse]))
    # 10 / 11.25, and from errors of 10% and 11% that of the ratio.
    assert "| lenet300 | sparse momentum | 5 | 2 / 2 | 0.889 ± 0.133 |" in text
    one = describe(material("mnist-compression", tmp_path, cells, [1.0, 2.0], rows=rows[1:]))
    assert "| 1 / 2 | 0.978 |" in one, "a single dense run has no spread"
    assert describe(material("mnist-compression", tmp_path, cells[:1], [1.0], rows=rows[:2])) == ""
