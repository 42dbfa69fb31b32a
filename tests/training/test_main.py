"""Around a run: one process per folder, a note where it diverged."""

import json
from dataclasses import replace

import pytest

from regrow.config import Optimizer
from regrow.errors import CollapseError, ConfigurationError, NonFiniteError, StateError
from regrow.training.main import alone_in, train
from regrow.training.run import Run
from tests.training import tiny


def test_a_folder_belongs_to_one_process_at_a_time(tmp_path):
    folder = tmp_path / "run"
    with (
        alone_in(folder),
        pytest.raises(StateError, match="another process is training in"),
        alone_in(folder),
    ):
        pass
    with alone_in(folder):
        pass
    assert not folder.exists(), "nothing was left in it"


def test_other_ranks_do_not_ask(tmp_path):
    with alone_in(tmp_path):
        with alone_in(tmp_path, leads=False):
            pass
        with pytest.raises(StateError, match="another process"), alone_in(tmp_path):
            pass


def test_a_run_that_diverges_leaves_a_note_and_no_result(tmp_path):
    config = tiny.config(
        tiny.write_data(tmp_path / "data.npz"), model="lenet300", max_steps=1, optimizer=Optimizer(lr=1e30)
    )
    with pytest.raises(NonFiniteError, match="evaluation at step 1"):
        train(config, tmp_path / "run")
    note = json.loads((tmp_path / "run" / "diverged.json").read_text())
    assert (note["identity"], note["steps"]) == (config.identity(), 1)
    assert "the weights are broken" in note["message"]
    assert not (tmp_path / "run" / "result.json").exists()


def test_a_run_that_collapses_ends_when_its_patience_does_also_after_a_stop(tmp_path):
    dead = {"model": "lenet300", "epochs": 4, "optimizer": Optimizer(lr=1e-30)}
    config = tiny.config(tiny.write_data(tmp_path / "data.npz"), **dead)
    per_epoch = Run(config, tmp_path / "whole").steps_per_epoch
    assert train(replace(config, max_steps=per_epoch, patience=2), tmp_path / "run") == 0
    with pytest.raises(CollapseError, match="2 validations in a row"):
        train(replace(config, patience=2), tmp_path / "run")
    note = json.loads((tmp_path / "run" / "diverged.json").read_text())
    assert note["steps"] == 2 * per_epoch
    assert train(config, tmp_path / "whole") == 0, "no patience set: trains on"


def test_patience_without_validation_images_is_refused(tmp_path):
    config = tiny.config(tiny.write_data(tmp_path / "data.npz"), patience=1)
    with pytest.raises(ConfigurationError, match="patience needs validation images"):
        train(replace(config, data=replace(config.data, train_split="train+val")), tmp_path / "run")


def test_the_note_goes_when_training_goes_on(tmp_path):
    config = tiny.config(tiny.write_data(tmp_path / "data.npz"), model="lenet300", max_steps=1)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "diverged.json").write_text("{}")
    assert train(config, tmp_path / "run") == 0
    assert not (tmp_path / "run" / "diverged.json").exists()


@pytest.mark.parametrize("changes", [{"model": "nope"}, {"model": "lenet300", "model_options": {"num_classes": 2}}])
def test_a_refused_run_leaves_nothing(tmp_path, changes):
    config = tiny.config(tiny.write_data(tmp_path / "data.npz"), **changes)
    with pytest.raises(ConfigurationError):
        train(config, tmp_path / "runs" / "refused")
    assert [path.name for path in tmp_path.iterdir()] == ["data.npz"]


def test_what_was_there_before_a_refused_run_stays(tmp_path):
    config = tiny.config(tiny.write_data(tmp_path / "data.npz"), model="nope")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    with pytest.raises(ConfigurationError):
        train(config, tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["notes.txt"]


def test_a_folder_that_cannot_be_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with (
            pytest.raises(ConfigurationError, match=r"file.* cannot be the folder of a run \(.*\): choose another"),
            alone_in(folder),
        ):
            pass
