"""Side files that are damaged, removed or changed never block a run; what is lost is named, weights and masks are the same."""

import json
import os
import shutil
from dataclasses import replace

import pytest
import torch

from regrow.errors import CheckpointWarning, ConfigurationError, StateError
from regrow.training.checkpoint import Checkpoints, split
from regrow.training.ledger import read_rows
from regrow.training.run import Run
from regrow.training.stored import evaluate_run
from tests.training import tiny
from tests.training.test_checkpoint import forge
from tests.training.test_run import StopAt

DAMAGES = {
    "emptied": lambda path: path.write_bytes(b""),
    "deleted": os.remove,
    "high byte": lambda path: path.write_bytes(b"\xff" + path.read_bytes()[1:]),
    "garbled": lambda path: path.write_text("[]\n"),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:40]),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tiny.write_data(tmp_path_factory.mktemp("data") / "data.npz")


@pytest.fixture(scope="module")
def stopped(data, tmp_path_factory):
    """A run stopped in the middle, and what it comes to."""
    folder = tmp_path_factory.mktemp("stopped")
    config = tiny.config(data, epochs=2, checkpoint_seconds=1e9)
    Run(config, folder / "whole").train()
    Run(config, folder / "run", view=StopAt(13)).train()
    return config, folder


@pytest.fixture
def run(stopped, tmp_path):
    config, folder = stopped
    shutil.copytree(folder / "run", tmp_path / "run")
    return config, tmp_path / "run", folder / "whole"


def weights(folder):
    newest = max((folder / "checkpoints").glob("step-*"))
    return (newest / "tensors.safetensors").read_bytes()


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["metrics.jsonl", "topology.jsonl", "speed.jsonl", "environment.json", "config.toml"])
def test_a_damaged_side_file_is_named_and_the_run_ends_with_the_same_weights(run, name, damage):
    config, folder, whole = run
    DAMAGES[damage](folder / name)
    harmless = damage == "deleted" and name in ("environment.json", "config.toml")
    if harmless:
        Run(config, folder).train()
    else:
        with pytest.warns(CheckpointWarning, match=name):
            Run(config, folder).train()
    assert weights(folder) == weights(whole)
    assert (folder / "config.toml").read_bytes() == (whole / "config.toml").read_bytes()
    assert json.loads((folder / "result.json").read_text())["steps"] == 20
    assert [r["step"] for r in read_rows(folder / "topology.jsonl")][-1:] == [15]


def test_the_journal_is_not_in_the_checkpoint_but_marked_there(run):
    _, folder, _ = run
    _, state = Checkpoints(folder / "checkpoints").latest()
    assert state["sparse"]["journal"] is None
    assert state["rows"]["topology"]["rows"] == 2
    assert state["rows"]["topology"]["bytes"] == (folder / "topology.jsonl").stat().st_size


def test_a_checkpoint_that_has_its_journal_inside_is_read(run):
    config, folder, whole = run
    path = folder / "checkpoints" / "step-00000013"
    _, state = Checkpoints(folder / "checkpoints").latest()
    state["sparse"]["journal"] = read_rows(folder / "topology.jsonl")
    del state["rows"]
    forge(path, state=json.dumps(split(state)[0]).encode())
    (folder / "topology.jsonl").unlink()
    resumed = Run(config, folder)
    assert [record.step for record in resumed.parts.handle.journal] == [5, 10]
    resumed.train()
    assert tiny.digests(folder)["topology.jsonl"] == tiny.digests(whole)["topology.jsonl"]


def test_a_configuration_edited_by_hand_is_written_anew_but_another_run_is_refused(run):
    config, folder, _ = run
    text = (folder / "config.toml").read_text()
    (folder / "config.toml").write_text(text.replace("seed = 0", "seed = 7"))
    with pytest.raises(StateError, match="another configuration"):
        Run(replace(config, seed=7), folder)
    assert "seed = 7" in (folder / "config.toml").read_text()
    with pytest.warns(CheckpointWarning, match=r"not that of the checkpoints \(seed = 7, not 0\): written anew"):
        Run(config, folder)
    assert (folder / "config.toml").read_text() == text


def test_a_foreign_configuration_is_named_when_a_run_is_evaluated(run):
    _, folder, _ = run
    (folder / "config.toml").write_text('[data]\nname = "mnist-sample"\n')
    with (
        pytest.warns(CheckpointWarning, match="changed or damaged"),
        pytest.raises(StateError, match="does not fit this run"),
    ):
        evaluate_run(folder)


ENTRIES = ("model", "optimizer", "sparse", "tallies", "identity", "threads")
# An optimizer without state is one before its first step.
WRONG = [(key, value) for key in ENTRIES for value in (None, {}, [], 3) if (key, value) != ("optimizer", {})]


@pytest.mark.parametrize(("key", "value"), WRONG)
def test_a_forged_checkpoint_of_another_form_is_refused(run, key, value):
    config, folder, _ = run
    path = folder / "checkpoints" / "step-00000013"
    plain = json.loads((path / "state.json").read_text())
    forge(path, state=json.dumps({**plain, key: value}).encode())
    if key == "threads":
        with pytest.warns(CheckpointWarning, match="threads"):
            Run(config, folder)
    else:
        with pytest.raises(StateError):
            Run(config, folder)


def test_optimizer_state_of_another_shape_is_refused(run):
    config, folder, _ = run
    path = folder / "checkpoints" / "step-00000013"
    _, state = Checkpoints(folder / "checkpoints").latest()
    state["optimizer"][0]["momentum_buffer"] = torch.zeros(4)
    shutil.rmtree(path)
    Checkpoints(folder / "checkpoints").save(13, state)
    with pytest.raises(StateError, match=r"momentum_buffer of parameter 0 has shape \(4,\)"):
        Run(config, folder)


def test_rows_removed_while_a_run_writes_them_come_back(data, tmp_path):
    config = tiny.config(data, epochs=2)
    Run(config, tmp_path / "whole").train()

    class Vandal(StopAt):
        def stepped(self, run):
            if run.step == 11:
                for name in ("metrics.jsonl", "metrics.csv", "topology.jsonl"):
                    (run.folder / name).unlink()

    with pytest.warns(CheckpointWarning, match="written anew"):
        Run(config, tmp_path / "robbed", view=Vandal()).train()
    assert tiny.digests(tmp_path / "robbed") == tiny.digests(tmp_path / "whole")


def test_a_renamed_checkpoint_does_not_pass_for_a_longer_run(run):
    config, folder, _ = run
    os.rename(folder / "checkpoints" / "step-00000013", folder / "checkpoints" / "step-00000020")
    with pytest.raises(StateError, match="holds step 13"):
        Run(config, folder)
    assert (folder / "checkpoints" / "step-00000020").is_dir()


def test_a_run_that_was_not_measured_is_not_measured_further(run):
    config, folder, _ = run
    from regrow.training.measured import MeasuredRun

    (folder / "config.toml").write_bytes(b"\xff")
    with pytest.warns(CheckpointWarning), pytest.raises(ConfigurationError, match="without measure_speedup"):
        MeasuredRun(replace(config, measure_speedup=True), folder)
