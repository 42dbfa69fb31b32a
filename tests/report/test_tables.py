from dataclasses import replace

import pytest

from regrow.report import tables
from regrow.report.history import history
from regrow.report.reading import read_run
from regrow.report.snapshot import take
from regrow.report.work import training_work


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0.00%"), (0.05, "5.00%"), (0.1, "10.0%"), (0.9994, "99.9%"), (1, "100%"), (0.00123, "0.12%")],
)
def test_percent(share, text):
    assert tables.percent(share) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.04, "0.0 s"), (59.94, "59.9 s"), (60, "1 min 0 s"), (3600, "1 h 0 min")]
)
def test_duration(seconds, text):
    assert tables.duration(seconds) == text


@pytest.mark.parametrize(("value", "text"), [(0.0123, "0.0123"), (99.94, "99.9"), (100, "100"), (3490, "3,490")])
def test_number(value, text):
    assert tables.number(value) == text


def test_layer_table_has_every_number(convolutional):
    shot = take(read_run(convolutional))
    text = tables.layers(shot.rows)
    for row in shot.rows:
        assert f">{row.nonzeros:,}<" in text
        assert f">{round(row.kept_macs):,}<" in text
        assert f">{'x'.join(map(str, row.shape))}<" in text
    assert f"<td>{sum(row.macs for row in shot.rows):,}</td>" in text
    unknown = tables.layers([replace(shot.rows[0], macs=None, input_density=None, sparse=False, reason="<first>")])
    assert "dense (&lt;first&gt;)" in unknown


def test_sizes_count_biases_too(files):
    text = tables.sizes(take(files))
    kept = files.result["nonzeros"]
    assert f"{kept:,} of 266,200" in text
    assert f"{kept + 410:,} of 266,610" in text


def test_three_figures_stay_apart(convolutional):
    files = read_run(convolutional)
    shot = take(files)
    work = training_work(shot, history(files.journal), files.step)
    measured, counted, estimated = tables.measured(files), tables.counted(shot, work, 600), tables.estimated(shot)
    seconds = sum(row["seconds"] for row in files.speed)
    assert tables.duration(seconds) in measured
    assert "FLOP" not in measured
    assert tables.percent(work.fraction) in counted
    assert "second" not in counted
    assert "estimate" in estimated
    assert "convolutions (2)" in estimated
    assert "linear layers (2)" in estimated


def test_missing_parts_are_said(files):
    shot = replace(take(files), rows=[])
    assert "No times" in tables.measured(replace(files, speed=[]))
    assert "Needs a checkpoint" in tables.counted(shot, None, 100)
    assert "not measured" in tables.estimated(shot)


def test_a_network_without_convolutions_has_no_paper_figure(files):
    assert "does not exist" in tables.estimated(take(files))


def test_traffic_of_several_processes(files):
    speed = [{**files.speed[0], "bytes_sent": 10, "bytes_dense": 40}]
    assert "25.0% of dense" in tables.measured(replace(files, speed=speed))
