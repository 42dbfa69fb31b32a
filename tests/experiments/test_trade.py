"""Error against time of redistribution per cost."""

from regrow.experiments.catalogue import find
from regrow.experiments.extras import Material
from regrow.experiments.rows import row_of
from regrow.experiments.tables import table_from_rows
from regrow.experiments.trade import describe
from tests.experiments.fakes import finish


def test_each_power_shows_error_work_and_time(tmp_path):
    experiment = find("cost-redistribution")
    cells = experiment.chosen("lenet5", None, None)
    rows = []
    for place, cell in enumerate(cells):
        for job in cell.jobs([0, 1]):
            finish(job, tmp_path, 0.7 + 0.1 * place, macs_share=0.2 / (place + 1))
            rows.append(row_of(job.config, tmp_path / job.key))
    table = table_from_rows(cells, rows)
    text = describe(Material(experiment, cells, [0, 1], table, rows, tmp_path, tmp_path))
    assert "| lenet5 | lambda 0 | 2 | 0.700 ± 0.000 | 20.00 ± 0.000 |" in text
    assert "| lenet5 | lambda 1 | 2 | 0.900 ± 0.000 | 6.67 ± 0.000 |" in text
