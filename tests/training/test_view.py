"""Watching: a bar on a terminal, plain lines elsewhere."""

import io
import os
import pty
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from rich.console import Console
from rich.text import Text

from regrow import native
from regrow.config import Sparse
from regrow.errors import MissingPackageError
from regrow.execution.choosing import measure
from regrow.topology.journal import LayerRecord, Record
from regrow.training import view as views
from regrow.training.ledger import read_rows
from regrow.training.run import Run
from regrow.training.view import LiveView, PlainView, TensorBoardView, make_view, update_lines
from tests.execution.automatic import SPARSE_WINS, Stopwatch
from tests.training import tiny
from tests.training.test_resume import environment


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tiny.write_data(tmp_path_factory.mktemp("data") / "data.npz")


def watched(kind, data, folder, terminal):
    output = io.StringIO()
    console = Console(file=output, force_terminal=terminal, width=250)
    view = kind(console, folder)
    run = Run(tiny.config(data, epochs=2, checkpoint_seconds=1e9), folder, view=view)
    run.train()
    view.close()
    return output.getvalue()


def test_plain_lines(data, tmp_path):
    text = watched(PlainView, data, tmp_path, False)
    assert "\x1b" not in text
    lines = text.splitlines()
    assert lines[0].startswith("starting: tiny-net")
    assert 'model = "tiny-net"' in text, "what differs from the defaults is said"
    assert "config.toml" in text, "and where the rest is"
    assert sum("validation" in line for line in lines) == 2
    assert sum(line.startswith("  update") for line in lines) == 3
    assert all("prune rate" in line and "%" in line for line in lines if line.startswith("  update"))
    assert all(("images/s" in line) == (" train " in line) for line in lines if line.startswith("epoch"))
    assert "test error" in text
    (speed,) = (number for number, line in enumerate(lines) if line.endswith("images/s (median), masked execution"))
    assert lines[speed + 1] == f"the run is in {tmp_path}; next:"
    assert f"  regrow evaluate {tmp_path}" in lines[speed:]


def record(count, moved=()):
    """A topology update of a network with so many layers, in which some layers won or lost weights."""
    layers = tuple(
        LayerRecord(
            layer=f"features.{index}",
            before=1000,
            removed=200,
            grown=200 + dict(moved).get(index, 0),
            regrown_at_once=0,
            after=1000 + dict(moved).get(index, 0),
            density=(index + 1) / 100,
            momentum_share=None,
            distance_to_start=0.1,
            distance_to_previous=0.1,
            ever_active=0.1,
        )
        for index in range(count)
    )
    return Record(update=3, step=30, prune_rate=0.2, budget=1000 * count, density=0.1, layers=layers)


def test_few_layers_stand_in_the_line_of_their_update():
    assert update_lines(record(2), 80) == ["  update 3  prune rate 0.200  features.0 1.0%  features.1 2.0%"]


@pytest.mark.parametrize("width", [20, 60, 80, 120])
def test_all_layers_of_vgg_are_shown_in_columns_that_fit(width):
    first, *lines = update_lines(record(16), width)
    assert first == "  update 3  prune rate 0.200"
    words = " ".join(lines).split()
    assert words[::2] == [f"features.{index}" for index in range(16)]
    assert words[1::2] == [f"{index + 1}.0%" for index in range(16)]
    assert max(map(len, lines)) <= max(width, 4 + len("features.15 16.0%"))
    across = max(1, (width - 2) // (len("features.15 16.0%") + 2))
    assert len(lines) == -(-16 // across), "as many columns as fit"
    starts = {line.index(word) for line in lines for word in line.split() if word.startswith("features")}
    assert len(starts) == across, "columns are aligned"


def test_of_deep_networks_the_layers_that_changed_most_are_shown():
    moved = {index: (-1) ** index * (10 + index) for index in range(40, 52)}
    _, *lines, last = update_lines(record(54, moved), 80)
    assert [word for word in " ".join(lines).split() if "%" not in word] == [f"features.{i}" for i in range(40, 52)]
    assert last == "    and 42 layers that changed less: topology.jsonl"
    assert len(update_lines(record(54, moved), 1000)) == 3


def test_layers_left_out_of_the_line_are_in_the_journals_file(data, tmp_path, monkeypatch):
    monkeypatch.setattr(views, "ALL_LAYERS", 3)
    monkeypatch.setattr(views, "MOST_CHANGED", 1)
    text = watched(PlainView, data, tmp_path, False)
    assert text.count("and 3 layers that changed less: topology.jsonl") == 3
    updates = read_rows(tmp_path / "topology.jsonl")
    assert [len(update["layers"]) for update in updates] == [4, 4, 4]


def test_a_finished_run_says_so_with_its_result_and_no_speed(data, tmp_path):
    watched(PlainView, data, tmp_path, False)
    text = watched(PlainView, data, tmp_path, False)
    assert "already finished at step 20: tiny-net" in text
    assert "test error" in text
    assert "images/s" not in text
    assert "resuming" not in text


def test_a_run_that_ends_before_the_first_update_says_so(data, tmp_path):
    output = io.StringIO()
    for steps, noted in ((4, True), (5, False)):
        view = PlainView(Console(file=output, width=200), tmp_path / str(steps))
        Run(tiny.config(data, max_steps=steps), tmp_path / str(steps), view=view).train()
        assert ("first topology update is due at step 5; this run ends at 4" in output.getvalue()) == noted
        output.truncate(0)


def test_live_bar(data, tmp_path):
    text = watched(LiveView, data, tmp_path, True)
    assert "\x1b[" in text
    for word in (
        "20/20",
        "loss",
        "accuracy",
        "images/s",
        "density 29.99%",
        "prune rate",
        "0:00:0",
        "validation",
        "  update 0",
    ):
        assert word in text


def test_80_columns_hold_bar_times_and_state(data, tmp_path):
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    view = LiveView(console, tmp_path)
    run = Run(tiny.config(data, epochs=2), tmp_path, view=view)
    run.train()
    view.close()
    with console.capture() as capture:
        console.print(view.progress.get_renderable())
    bar, state = Text.from_ansi(capture.get()).plain.splitlines()
    assert re.fullmatch(r"training ━{20,} 20/20 0:00:\d\d 0:00:\d\d ?", bar)
    assert re.fullmatch(r"loss \d.*  accuracy .*%  .* images/s  density 29.99%  prune rate 0\.\d{3} *", state)


def test_a_stop_says_how_to_go_on(data, tmp_path):
    output = io.StringIO()
    view = PlainView(Console(file=output), tmp_path)
    run = Run(tiny.config(data), tmp_path, view=view)
    run.stop_requested = True
    assert run.train() is None
    assert "stopped at step 1 and saved: the same command resumes" in output.getvalue()
    view = PlainView(Console(file=output, width=200), tmp_path)
    Run(tiny.config(data), tmp_path, view=view).train()
    assert "resuming at step 1" in output.getvalue()


def test_make_view_suits_the_output_and_prints_nothing_yet(data, tmp_path, capsys):
    config = tiny.config(data)
    view = make_view(config, tmp_path)
    assert type(view) is PlainView
    assert capsys.readouterr().out == "", "an error may still make the configuration moot"


def test_make_view_on_a_terminal(data, tmp_path, monkeypatch):
    monkeypatch.setattr(views, "Console", lambda: Console(file=io.StringIO(), force_terminal=True))
    view = make_view(tiny.config(data), tmp_path)
    assert type(view) is LiveView
    view.close()


def test_tensorboard_missing_is_the_users_error(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(MissingPackageError, match=r"regrow\[tensorboard\]"):
        TensorBoardView(PlainView(Console(file=io.StringIO()), tmp_path), tmp_path)


def test_tensorboard(data, tmp_path):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    view = TensorBoardView(PlainView(Console(file=io.StringIO()), tmp_path), tmp_path)
    Run(tiny.config(data, epochs=1), tmp_path, view=view).train()
    view.close()
    written = events.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    rows = [row for row in read_rows(tmp_path / "metrics.jsonl") if row["kind"] == "train"]
    assert [event.step for event in written.Scalars("train/loss")] == [row["step"] for row in rows]
    assert [event.value for event in written.Scalars("train/loss")] == pytest.approx([row["loss"] for row in rows])
    assert {"validation/accuracy", "test/accuracy", "train/density"} <= set(written.Tags()["scalars"])


def test_tensorboard_has_no_step_twice_and_a_refused_run_no_log(data, tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    config = tiny.config(data, epochs=1, tensorboard=True)
    make_view(config, tmp_path).close()
    assert not (tmp_path / "tensorboard").exists(), "nothing was trained"
    purged = []
    for steps in (4, 0):
        view = make_view(replace(config, max_steps=steps), tmp_path)
        make = view._make
        monkeypatch.setattr(
            view, "_make", lambda path, purge_step, make=make: (purged.append(purge_step), make(path))[1]
        )
        Run(replace(config, max_steps=steps), tmp_path, view=view).train()
        view.close()
    assert purged == [None, 5]


def test_a_real_terminal_gets_a_bar(tmp_path):
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "regrow", "train", "demo", "--max-steps", "2", "--threads", "1"]
    process = subprocess.Popen(
        [*command, "--out", str(tmp_path / "run")],
        stdout=follower,
        stderr=follower,
        stdin=follower,
        env=environment(TERM="xterm", COLUMNS="200"),
    )
    os.close(follower)
    text = b""
    while True:
        try:
            text += os.read(leader, 65536)
        except OSError:
            break
    os.close(leader)
    assert process.wait(60) == 0
    assert b"\x1b[" in text
    assert b"2/2" in text


@pytest.mark.skipif(not native.available(), reason="native kernels not built")
def test_auto_prints_its_choices_after_the_first_step_and_when_resumed(data, tmp_path, monkeypatch):
    monkeypatch.setenv("REGROW_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(measure, "milliseconds", Stopwatch(*SPARSE_WINS))
    sparse = Sparse(density=0.3, update_every=5, window_tolerance=0.5, execution="auto")
    texts = []
    for steps in (2, 3):
        output = io.StringIO()
        view = PlainView(Console(file=output, width=200), tmp_path)
        run = Run(tiny.config(data, sparse=sparse, max_steps=steps), tmp_path / "run", view=view)
        run.train()
        texts.append(output.getvalue())
        assert run.parts.handle.switch.verdicts == (1 if steps == 2 else 0)
        assert {row.execution for row in run.parts.handle.explain()} == {"sparse"}
    for text in texts:
        assert text.count("execution: auto") == 1
        assert "sparse is faster" in text
    assert "resuming at step 2" in texts[1]
