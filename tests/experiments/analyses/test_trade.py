"""Error against time of redistribution per cost."""

from regrow.experiments.analyses import Material
from regrow.experiments.analyses.trade import describe
from regrow.experiments.catalogue import find
from regrow.experiments.rows import row_of
from regrow.experiments.tables import table_from_rows
from tests.experiments.fakes import finish

EXPERIMENT = find("cost-redistribution")
CELLS = EXPERIMENT.chosen("lenet5", None, None)


def finished(tmp_path, error=0.7):
    rows = []
    for place, cell in enumerate(CELLS):
        for job in cell.jobs([0, 1]):
            finish(job, tmp_path, error + 0.1 * place, macs_share=0.2 / (place + 1))
            rows.append(row_of(job.config, tmp_path / job.key))
    return rows


def described(tmp_path, rows):
    table = table_from_rows(CELLS, rows)
    return describe(Material(EXPERIMENT, CELLS, [0, 1], table, rows, tmp_path, tmp_path))


def test_each_power_shows_error_work_and_time(tmp_path):
    text = described(tmp_path, finished(tmp_path))
    assert "| lenet5 | lambda 0 | 2 | 0.700 ± 0.000 | 20.00 ± 0.000 | 1.2 ± 0.000 | sparse, window 0.001 |" in text
    assert "| lenet5 | lambda 1 | 2 | 0.900 ± 0.000 | 6.67 ± 0.000 |" in text
    picture = (tmp_path / "trade-lenet5.svg").read_text()
    assert all(f"<!-- lambda {power} -->" in picture for power in ("0", "0.5", "1"))
    assert (tmp_path / "trade-lenet5.png").is_file()


def test_runs_that_were_computed_otherwise_have_lines_of_their_own(tmp_path):
    rows = finished(tmp_path)
    masked = [{**row, "execution": "masked", "processor_seconds": 9.0, "macs_share": 0.5} for row in rows]
    text = described(tmp_path, rows + masked)
    assert "| lenet5 | lambda 0 | 2 | 0.700 ± 0.000 | 20.00 ± 0.000 | 1.2 ± 0.000 | sparse, window 0.001 |" in text
    assert "| lenet5 | lambda 0 | 2 | 0.700 ± 0.000 | 50.00 ± 0.000 | 9.0 ± 0.000 | masked, window 0.001 |" in text


def test_rows_of_before_the_share_was_recorded(tmp_path):
    rows = [{**row, "macs_share": "", "processor_seconds": ""} for row in finished(tmp_path)]
    assert "| lenet5 | lambda 0 | 2 | 0.700 ± 0.000 | not measured | not measured |" in described(tmp_path, rows)
    assert not (tmp_path / "trade-lenet5.svg").exists(), "there is nothing to draw"


def test_runs_that_guess_have_work_and_time_but_no_error(tmp_path):
    text = described(tmp_path, finished(tmp_path, error=89.0))
    assert "| lenet5 | lambda 0 | 2, 0 learned |  | 20.00 ± 0.000 | 1.2 ± 0.000 |" in text
    assert not (tmp_path / "trade-lenet5.svg").exists()
