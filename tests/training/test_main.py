"""Around a run: one process per folder, a note where it diverged."""

import json

import pytest

from regrow.config import Optimizer
from regrow.errors import NonFiniteError, StateError
from regrow.training.main import alone_in, train
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
    assert not list(folder.iterdir())


def test_other_ranks_do_not_ask(tmp_path):
    with alone_in(tmp_path), alone_in(tmp_path, leads=False):
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


def test_the_note_goes_when_training_goes_on(tmp_path):
    config = tiny.config(tiny.write_data(tmp_path / "data.npz"), model="lenet300", max_steps=1)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "diverged.json").write_text("{}")
    assert train(config, tmp_path / "run") == 0
    assert not (tmp_path / "run" / "diverged.json").exists()
