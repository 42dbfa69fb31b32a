"""Medians of the sensitivity experiment beside the paper's."""

from regrow.experiments import targets
from regrow.experiments.analyses import Material, medians, run
from regrow.experiments.catalogue import find
from regrow.experiments.rows import row_of
from regrow.experiments.tables import table_from_rows
from tests.experiments.fakes import finish

SENSITIVITY = find("sensitivity")


def test_every_setting_has_a_median_near_its_mean():
    found = {(cell.model, cell.label): medians.published(cell) for cell in SENSITIVITY.cells()}
    assert found["vgg16-d", "momentum 0.99 sparse"] == 39.08
    assert found["vgg16-d", "momentum 0.5 dense"] == 6.58
    assert found["vgg16-d", "prune rate 0.2 linear"] == 6.53
    assert found["alexnet-s", "prune rate 0.7 cosine"] == 15.185
    for cell in SENSITIVITY.cells():
        if "0.99" not in cell.label:
            assert abs(found[cell.model, cell.label] - cell.target.error) < 0.25, cell


def test_medians_by_column_sums():
    sums = {
        (model, parameter): tuple(round(sum(pair[which] for pair in values.values()), 3) for which in (0, 1))
        for model, found in targets.SENSITIVITY_MEDIANS.items()
        for parameter, values in found.items()
    }
    assert sums == {
        ("vgg16-d", "momentum"): (79.65, 71.195),
        ("vgg16-d", "prune rate"): (39.085, 39.365),
        ("alexnet-s", "momentum"): (112.295, 101.315),
        ("alexnet-s", "prune rate"): (87.38, 86.505),
    }


def test_collapsed_runs_do_not_count(tmp_path):
    cells = SENSITIVITY.chosen("vgg16-d", None, None)
    cell = next(cell for cell in cells if cell.label == "momentum 0.8 sparse")
    rows = []
    for job, error in zip(cell.jobs(range(4)), (6.5, 7.5, 6.6, 90.0), strict=True):
        finish(job, tmp_path, error)
        rows.append(row_of(job.config, tmp_path / job.key))
    texts = run(Material(SENSITIVITY, cells, [0], table_from_rows(cells, rows), rows, tmp_path, tmp_path))
    assert "| vgg16-d | momentum 0.8 sparse | 3 | 6.600 | 6.525 | masked, window 0.001 |" in texts[1]
    assert (tmp_path / "medians.md").read_text() == texts[1]
