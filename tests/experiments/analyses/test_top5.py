"""Top-5 accuracies beside the paper's."""

from regrow.experiments.analyses import Material, run, top5
from regrow.experiments.catalogue import find
from regrow.experiments.rows import row_of
from regrow.experiments.tables import table_from_rows
from tests.experiments.fakes import finish

IMAGENET = find("imagenet")


def test_every_setting_of_the_papers_tables_has_its_value():
    found = {(cell.label, cell.density): top5.published(cell) for cell in IMAGENET.cells()}
    assert found["dense", 1.0] == 92.4
    assert found["fully sparse (10%)", 0.15626087] == 91.0
    assert found["fully sparse (20%)", 0.25626087] == 91.8
    assert found["partially dense, sparse-momentum", 0.2] == 91.9
    assert found["partially dense, dsr", 0.2] == 92.4
    assert [found["tuned", density] for density in (1.0, 0.1, 0.2, 0.3)] == [93.5, 91.5, 92.5, 92.9]
    # The ablation was published without.
    assert [label for (label, _), value in found.items() if value is None] == [
        "tuned, momentum / random",
        "tuned, none / momentum",
        "tuned, none / random",
    ]


def test_ours_stand_beside_them(tmp_path):
    dense, fully, *_ = cells = IMAGENET.cells()
    for cell, shares in ((dense, (0.92, 0.93)), (fully, (None,))):
        for job, share in zip(cell.jobs(range(len(shares))), shares, strict=True):
            finish(job, tmp_path, 25.0, test_top5=share)
    rows = [
        row_of(job.config, tmp_path / job.key)
        for cell, count in ((dense, 2), (fully, 1))
        for job in cell.jobs(range(count))
    ]
    (text,) = run(Material(IMAGENET, cells, [0, 1], table_from_rows(cells, rows), rows, tmp_path, tmp_path))
    assert "| dense | 100 | 2 | 92.50 ± 0.500 | 92.4 | dense |" in text
    assert "| fully sparse (10%) | 15.6 | 0 | not measured | 91.0 | masked, window 0.001 |" in text
    assert (tmp_path / "top5.md").read_text() == text
    assert top5.describe(Material(IMAGENET, cells, [0], [], [], tmp_path, tmp_path)) == ""
