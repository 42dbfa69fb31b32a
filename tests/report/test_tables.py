import re
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


def fact(text, name):
    """The value beside a name in a table of facts."""
    found = re.findall(rf"<td[^>]*>{re.escape(name)}</td><td[^>]*>([^<]*)</td>", text)
    assert len(found) == 1, text
    return found[0]


def test_one_rate_of_images_is_shown(files):
    # Per row four steps of 600 images: one second of training, one of evaluation and checkpoints.
    row = {"seconds": 2.0, "steps": 4, "images": 2400, "images_per_second": 2400.0}
    text = tables.measured(replace(files, speed=[{**row, "step": step} for step in (4, 8, 12)]))
    assert fact(text, "training time") == "6.0 s for 12 steps, 7,200 images"
    assert fact(text, "images per second") == "2,400, median of 3 rows"
    assert text.count("<td>images per second") <= 1
    assert "1,200" not in text, "images over the whole time would be a second figure of that name"


def test_steps_that_a_killed_process_never_logged_do_not_count(files):
    # Resumed from a checkpoint at step 7: the second row has its own steps only, as it has its own seconds only.
    rows = [
        {"step": 4, "seconds": 2.0, "steps": 4, "images": 2400, "images_per_second": 2400.0},
        {"step": 8, "seconds": 0.5, "steps": 1, "images": 400, "images_per_second": 800.0},
    ]
    text = tables.measured(replace(files, speed=rows))
    assert fact(text, "training time") == "2.5 s for 5 steps, 2,800 images"
    assert tables.images_per_step(replace(files, speed=rows)) == 560


def test_rows_without_counts_are_counted_by_their_step_numbers(files):
    rows = [{"step": step, "seconds": 2.0, "images_per_second": 2400.0} for step in (4, 6)]
    text = tables.measured(replace(files, speed=rows))
    assert fact(text, "training time") == "4.0 s for 6 steps, 3,600 images"


def test_a_real_run_counts_every_image(files):
    text = tables.measured(files)
    trained = files.rows("train")[-1]["step"]
    assert fact(text, "training time").endswith(f" for {trained} steps, {4 * 3600:,} images")


def test_missing_parts_are_said(files):
    shot = replace(take(files), rows=[])
    assert "No times" in tables.measured(replace(files, speed=[]))
    assert "Needs a checkpoint" in tables.counted(shot, None, 100)
    assert "not measured" in tables.estimated(shot)


def test_a_network_without_convolutions_has_no_paper_figure(files):
    assert "does not exist" in tables.estimated(take(files))


def test_traffic_of_several_processes(files):
    assert "traffic" not in tables.measured(files)
    row = {"seconds": 1.0, "images_per_second": 100.0, "images": 100, "bytes_per_step_dense": 4_000_000.0}
    speed = [
        {**row, "step": 30, "steps": 30, "bytes_per_step": 500_000.0},
        {**row, "step": 40, "steps": 10, "bytes_per_step": 2_500_000.0},
    ]
    found = fact(tables.measured(replace(files, speed=speed)), "gradient traffic per step and process")
    assert found == "1.0 MB, 25.0% of dense (4.0 MB)", "a mean over steps, not over rows"
