"""What ``auto`` decides by a stopwatch is saved before the first step that uses it."""

import random

import pytest

from regrow import native
from regrow.config import Sparse
from regrow.execution.choosing import measure
from regrow.training.checkpoint import Checkpoints
from regrow.training.run import Run
from tests.training import tiny
from tests.training.test_run import StopAt

pytestmark = pytest.mark.skipif(not native.available(), reason="native kernels not built")


class Stop(Exception):
    pass


class Watch(StopAt):
    """Notes with which decision each step is computed, and breaks the run off like a kill: nothing is saved any more."""

    def __init__(self, end):
        self.end, self.used = end, {}

    def stepped(self, run):
        if run.step == self.end:
            raise Stop
        self.used[run.step] = run.parts.handle.switch.auto.verdict


@pytest.mark.parametrize("end", [2, 3, 9])
def test_a_killed_run_goes_on_as_it_had_decided(end, tmp_path, monkeypatch):
    data = tiny.write_data(tmp_path / "data.npz")
    sparse = Sparse(density=0.2, update_every=5, execution="auto")
    config = tiny.config(data, sparse=sparse, epochs=2, checkpoint_seconds=1e9)
    dice = random.Random(0)
    monkeypatch.setattr(measure, "milliseconds", lambda candidates: {name: dice.uniform(0.1, 2) for name in candidates})
    views = [Watch(end), Watch(12)]
    for number, view in enumerate(views):
        monkeypatch.setenv("REGROW_CACHE", str(tmp_path / f"cache{number}"))
        with pytest.raises(Stop):
            Run(config, tmp_path / "run", view=view).train()
    first, second = views
    assert first.used[1] is not None
    assert 2 <= min(second.used) <= end, "resumed from the checkpoint of a decision"
    assert all(second.used[step] == first.used[step] for step in set(first.used) & set(second.used))
    saved = [state for _, state in [Checkpoints(tmp_path / "run" / "checkpoints").latest()]]
    assert saved[0]["sparse"]["execution"]["decision"] is not None
