"""One run in one process: stopping, resuming, refusing, recording."""

import io
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import replace

import pytest
import torch
from rich.console import Console

from regrow import native
from regrow.config import Sparse, to_toml
from regrow.errors import ConfigurationError, StateError
from regrow.execution.choosing import measure
from regrow.training.ledger import read_rows
from regrow.training.main import STOPPED
from regrow.training.run import Run
from regrow.training.view import PlainView
from tests.execution.automatic import SPARSE_WINS, Stopwatch
from tests.training import tiny
from tests.training.test_resume import environment


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tiny.write_data(tmp_path_factory.mktemp("data") / "data.npz")


class StopAt:
    """A view that asks for a stop at some steps."""

    def __init__(self, *steps):
        self.steps = steps

    def stepped(self, run):
        run.stop_requested = run.step in self.steps

    def __getattr__(self, name):
        return lambda *_: None


def test_stops_on_request_and_ends_as_if_never_stopped(data, tmp_path):
    config = tiny.config(data, checkpoint_seconds=1e9)
    whole = Run(config, tmp_path / "whole").train()
    # Within an epoch, at its end, at the very end, and before a topology update.
    for step in (3, 10, 24, 40):
        run = Run(config, tmp_path / "stopped", view=StopAt(step))
        assert run.train() is None
        assert run.step == step
    run = Run(config, tmp_path / "stopped")
    assert run.resumed_from == 40
    assert {**run.train(), "images_per_second": None} == {**whole, "images_per_second": None}
    assert tiny.digests(tmp_path / "stopped") == tiny.digests(tmp_path / "whole")
    assert not tiny.leftovers(tmp_path / "stopped")


def test_a_finished_run_repeated_changes_nothing(data, tmp_path):
    config = tiny.config(data, epochs=1)
    first = Run(config, tmp_path).train()
    before = tiny.digests(tmp_path)
    assert Run(config, tmp_path).train() == first
    assert tiny.digests(tmp_path) == before


def test_result_and_rows_tell_what_happened(data, tmp_path):
    config = tiny.config(data)
    run = Run(config, tmp_path)
    result = run.train()
    stored = json.loads((tmp_path / "result.json").read_text())
    assert stored.pop("sha256")
    assert stored == result
    assert result["steps"] == 40 == run.total_steps
    assert result["test_error"] == pytest.approx(100 * (1 - result["test_accuracy"]))
    assert result["nonzeros"] == run.parts.handle.nonzeros == round(0.3 * result["weights"])
    rows = read_rows(tmp_path / "metrics.jsonl")
    assert [r["step"] for r in rows if r["kind"] == "train"] == [4, 8, 10, 12, 16, 20, 24, 28, 30, 32, 36, 40]
    assert [r["step"] for r in rows if r["kind"] == "validation"] == [10, 20, 30, 40]
    assert [r["step"] for r in rows if r["kind"] == "test"] == [40]
    assert [r["step"] for r in read_rows(tmp_path / "topology.jsonl")] == [5, 10, 15, 20, 25, 30, 35]
    losses = [r["loss"] for r in rows if r["kind"] == "train"]
    assert sum(losses[-3:]) < sum(losses[:3])
    assert (tmp_path / "config.toml").read_text() == to_toml(config)


def test_rows_of_speed_count_the_steps_and_images_of_their_seconds(data, tmp_path):
    config = tiny.config(data, epochs=2, checkpoint_seconds=1e9)
    config = replace(config, data=replace(config.data, batch=21))
    whole = Run(config, tmp_path / "whole")
    whole.train()
    rows = read_rows(tmp_path / "whole" / "speed.jsonl")
    last = whole.steps_per_epoch
    assert [(row["step"], row["steps"]) for row in rows][:4] == [(4, 4), (8, 4), (last, last - 8), (12, 12 - last)]
    assert sum(row["steps"] for row in rows) == whole.total_steps
    assert sum(row["images"] for row in rows) == 2 * len(whole.parts.train) < 21 * whole.total_steps
    # The two steps that were saved without a row are gone, with their seconds.
    Run(config, tmp_path / "stopped", view=StopAt(6)).train()
    Run(config, tmp_path / "stopped").train()
    rows = read_rows(tmp_path / "stopped" / "speed.jsonl")
    assert [(row["step"], row["steps"], row["images"]) for row in rows][:2] == [(4, 4, 84), (8, 2, 42)]


def test_a_damaged_newest_checkpoint_falls_back_and_ends_the_same(data, tmp_path):
    config = tiny.config(data, epochs=2)
    Run(config, tmp_path / "whole").train()
    Run(config, tmp_path / "damaged", view=StopAt(13)).train()
    path = tmp_path / "damaged" / "checkpoints" / "step-00000013" / "tensors.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.warns(UserWarning, match="step-00000013"):
        run = Run(config, tmp_path / "damaged")
    assert run.resumed_from == 12
    run.train()
    assert tiny.digests(tmp_path / "damaged") == tiny.digests(tmp_path / "whole")


def test_another_configuration_is_refused_and_leaves_the_folder_alone(data, tmp_path):
    config = tiny.config(data, epochs=1)
    Run(config, tmp_path).train()
    before = tiny.digests(tmp_path)
    with pytest.raises(
        StateError, match=r"another configuration \(seed = 0, not 1\).*--out .*--weights .* --start zeros"
    ):
        Run(replace(config, seed=1), tmp_path)
    assert tiny.digests(tmp_path) == before


def test_another_number_of_threads_warns(data, tmp_path):
    config = tiny.config(data, epochs=1, threads=0, max_steps=3)
    Run(config, tmp_path).train()
    torch.set_num_threads(2)
    with pytest.warns(UserWarning, match="threads = 2, saved with 1"):
        Run(config, tmp_path)


def test_other_kernels_warn_and_go_on(data, tmp_path, monkeypatch):
    config = tiny.config(data, epochs=1, threads=0, max_steps=3)
    Run(config, tmp_path).train()
    monkeypatch.setattr("regrow.training.run.kernels", lambda: "built, neon")
    with pytest.warns(UserWarning, match="kernels = built, neon, saved with .*: results may differ in the last bits"):
        assert Run(config, tmp_path).step == 3


def test_a_run_names_the_code_of_every_part_of_it(data, tmp_path, monkeypatch):
    config = tiny.config(data, epochs=1)
    for name, view in (("first", StopAt(3)), ("second", StopAt(5)), ("second", None)):
        monkeypatch.setattr("regrow.training.run.code", lambda name=name: name)
        if name == "second" and view is not None:
            with pytest.warns(UserWarning, match="code = second, saved with first"):
                run = Run(config, tmp_path, view=view)
        else:
            run = Run(config, tmp_path, view=view)
        result = run.train()
    assert result["code"] == "first+second"
    monkeypatch.setattr(Run, "state", lambda run, full=Run.state: {k: v for k, v in full(run).items() if k != "code"})
    monkeypatch.setattr("regrow.training.run.code", lambda: "first")
    Run(config, tmp_path / "older", view=StopAt(3)).train()  # its checkpoint does not name the code
    environment = tmp_path / "older" / "environment.json"
    environment.write_text(json.dumps(json.loads(environment.read_text()) | {"code": "first"}))
    monkeypatch.setattr("regrow.training.run.code", lambda: "second")
    with pytest.warns(UserWarning, match="code = second, saved with first"):
        assert Run(config, tmp_path / "older").code == "first+second"
    monkeypatch.setattr("regrow.training.run.code", lambda: "third")
    with pytest.warns(UserWarning, match="code = third"):
        assert Run(config, tmp_path).code == "first+second", "a finished run has nothing left for other code"


@pytest.mark.parametrize(
    "method", ["snip", "synflow", "grasp", "set", "mest", "soft-deep-r", "sr-ste", "dense", "granet"]
)
def test_other_methods_train_and_resume(method, data, tmp_path):
    config = tiny.config(
        data,
        sparse=Sparse(method, 0.3, update_every=4 if method in ("granet", "mest") else 0),
        epochs=2,
        checkpoint_seconds=1e9,
    )
    Run(config, tmp_path / "whole").train()
    Run(config, tmp_path / "stopped", view=StopAt(11)).train()
    Run(config, tmp_path / "stopped").train()
    assert tiny.digests(tmp_path / "stopped") == tiny.digests(tmp_path / "whole")


@pytest.mark.skipif(not native.available(), reason="native kernels not built")
@pytest.mark.parametrize("window", [0.0, 0.5])
def test_auto_moves_channels_last_weights_and_resumes_bit_for_bit(window, data, tmp_path, monkeypatch):
    monkeypatch.setenv("REGROW_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(measure, "milliseconds", Stopwatch(*SPARSE_WINS))
    sparse = Sparse(density=0.2, update_every=5, window_tolerance=window, execution="auto")
    config = tiny.config(data, sparse=sparse, epochs=2, checkpoint_seconds=1e9)
    whole = Run(config, tmp_path / "whole")
    assert not whole.parts.network[3].weight.is_contiguous()
    whole.train()
    for stop in (1, 8):
        folder = tmp_path / f"stopped{stop}"
        Run(config, folder, view=StopAt(stop)).train()
        resumed = Run(config, folder)
        resumed.train()
        runs = (whole.parts, resumed.parts)
        for mine, theirs in zip(*(parts.network.parameters() for parts in runs), strict=True):
            momenta = [p.optimizer.state[w]["momentum_buffer"] for p, w in zip(runs, (mine, theirs), strict=True)]
            assert torch.equal(mine, theirs)
            assert torch.equal(*momenta)
            assert all(tensor.is_contiguous() for tensor in (mine, theirs, *momenta))


@pytest.mark.skipif(not native.available(), reason="native kernels not built")
@pytest.mark.parametrize("stop", [1, 8])
def test_measured_costs_are_kept_when_resumed(stop, data, tmp_path, monkeypatch):
    sparse = Sparse(density=0.2, update_every=5, costs="measured", options={"cost_power": 1.0})
    config = tiny.config(data, sparse=sparse, epochs=2, checkpoint_seconds=1e9)
    figures = (("Conv2d(1,", 5.0), ("Conv2d(8,", 3.0), ("features=72", 2.0))
    for folder in ("whole", "stopped"):
        monkeypatch.setenv("REGROW_CACHE", str(tmp_path / f"cache of {folder}"))
        monkeypatch.setattr(measure, "milliseconds", Stopwatch(*figures))
        Run(config, tmp_path / folder, view=StopAt(stop) if folder == "stopped" else None).train()
    monkeypatch.setenv("REGROW_CACHE", str(tmp_path / "empty cache"))
    monkeypatch.setattr(measure, "milliseconds", refused := Stopwatch(otherwise=99.0))
    output = io.StringIO()
    Run(config, tmp_path / "stopped", view=PlainView(Console(file=output, width=100), tmp_path)).train()
    assert refused.asked == []
    assert tiny.digests(tmp_path / "stopped") == tiny.digests(tmp_path / "whole")
    assert "ns/weight" in output.getvalue()


def test_measured_costs_cannot_see_into_a_compiled_model(data, tmp_path):
    sparse = Sparse(density=0.2, costs="measured", options={"cost_power": 1.0})
    with pytest.raises(ConfigurationError, match=r"which torch\.compile hides"):
        Run(tiny.config(data, sparse=sparse, compile=True), tmp_path)


def test_methods_in_rounds_are_refused(data, tmp_path):
    with pytest.raises(ConfigurationError, match="trains in rounds"):
        Run(tiny.config(data, sparse=Sparse("lottery-ticket", 0.3)), tmp_path)


def start(config, folder):
    path = folder.with_suffix(".toml")
    path.write_text(to_toml(config))
    command = [sys.executable, "-m", "regrow", "train", str(path), "--out", str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment())


def wait_for_rows(folder, count):
    deadline = time.monotonic() + 120
    while len(read_rows(folder / "speed.jsonl")) < count:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_ctrl_c_saves_and_exits_and_the_same_command_resumes(data, tmp_path):
    config = tiny.config(data, model="lenet300", epochs=60, log_every=1, checkpoint_seconds=1e9)
    Run(config, tmp_path / "whole").train()
    process = start(config, tmp_path / "stopped")
    wait_for_rows(tmp_path / "stopped", 5)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == STOPPED, output
    assert "the same command resumes" in output
    assert len(os.listdir(tmp_path / "stopped" / "checkpoints")) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = Run(config, tmp_path / "stopped")
    assert run.resumed_from >= 5
    run.train()
    assert tiny.digests(tmp_path / "stopped") == tiny.digests(tmp_path / "whole")


@pytest.mark.skipif(not native.available(), reason="native kernels not built")
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_sparse_execution_resumes_bit_for_bit(optimizer, data, tmp_path):
    """The native step included, which a resumed run must take at once."""
    sparse = Sparse("sparse-momentum", 0.3, update_every=5, window_tolerance=0.5, execution="sparse")
    config = tiny.config(data, sparse=sparse, threads=1)
    config = replace(config, optimizer=replace(config.optimizer, name=optimizer))
    Run(config, tmp_path / "whole").train()
    for stop in (7, 13, -1):
        run = Run(config, tmp_path / "pieces", view=StopAt(stop))
        run.train()
    assert run.resumed_from == 13
    assert tiny.digests(tmp_path / "pieces") == tiny.digests(tmp_path / "whole")


def test_a_run_that_goes_on_has_no_result_until_its_end(data, tmp_path):
    config = tiny.config(data, epochs=2, max_steps=5)
    Run(config, tmp_path).train()
    assert json.loads((tmp_path / "result.json").read_text())["steps"] == 5
    longer = replace(config, max_steps=0)
    Run(longer, tmp_path, view=StopAt(8)).train()
    assert not (tmp_path / "result.json").exists()
    result = Run(longer, tmp_path).train()
    assert json.loads((tmp_path / "result.json").read_text())["steps"] == result["steps"] > 8
    Run(longer, tmp_path)
    assert (tmp_path / "result.json").exists(), "looking at a finished run takes nothing away"


def test_a_configuration_of_the_users_own_is_not_replaced(data, tmp_path):
    config = tiny.config(data, epochs=1)
    own = "# mine\n" + to_toml(config)
    (tmp_path / "config.toml").write_text(own)
    with pytest.raises(StateError, match=r"config\.toml is a file of your own.*--out"):
        Run(config, tmp_path)
    assert (tmp_path / "config.toml").read_text() == own
    (tmp_path / "config.toml").write_text(
        to_toml(replace(config, seed=3))
    )  # of a run that ended before its first checkpoint
    Run(config, tmp_path)
    assert (tmp_path / "config.toml").read_text() == to_toml(config)
