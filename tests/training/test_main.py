"""Around a run: one process per folder."""

import pytest

from regrow.errors import StateError
from regrow.training.main import alone_in


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
