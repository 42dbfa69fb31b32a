"""A run with ``measure_speedup``: same training, estimates beside it, and measurements that survive a stop."""

import json
from dataclasses import replace

import pytest

from regrow.config import Config, Data, Sparse
from regrow.errors import ConfigurationError
from regrow.training.main import run_class
from regrow.training.measured import MeasuredRun
from regrow.training.run import Run

CONFIG = Config(
    model="lenet5",
    epochs=1,
    max_steps=4,
    data=Data("mnist-sample", batch=20),
    sparse=Sparse(density=0.2, update_every=90),
    measure_speedup=True,
)


def test_the_key_chooses_the_run():
    assert run_class(CONFIG) is MeasuredRun
    assert run_class(replace(CONFIG, measure_speedup=False)) is Run


def test_measuring_does_not_change_the_run(tmp_path):
    plain = Run(replace(CONFIG, measure_speedup=False), tmp_path / "plain").train()
    measured = MeasuredRun(CONFIG, tmp_path / "measured").train()
    assert "speedup" not in plain
    assert not (tmp_path / "plain" / "speedup.jsonl").exists()
    found = measured.pop("speedup")
    assert plain.pop("images_per_second") > 0
    assert measured.pop("images_per_second") > 0
    assert measured == plain
    assert found["both"] >= found["weights"] > 1
    assert found["empty_channels_dead_maps"] >= found["empty_channels"] >= 1
    (row,) = map(json.loads, (tmp_path / "measured" / "speedup.jsonl").read_text().splitlines())
    assert row["passes"] == 4
    assert list(row["layers"]) == ["conv1", "conv2"]


def test_measurements_are_part_of_a_checkpoint(tmp_path):
    run = MeasuredRun(CONFIG, tmp_path)
    run.view = _StopAt(2)
    assert run.train() is None
    again = MeasuredRun(CONFIG, tmp_path)
    assert again.recorder.passes == 2
    again.train()
    assert again.recorder.passes == 4


def test_half_a_run_is_not_taken_for_the_whole(tmp_path):
    run = Run(replace(CONFIG, measure_speedup=False), tmp_path)
    run.view = _StopAt(2)
    run.train()
    before = (tmp_path / "config.toml").read_text()
    with pytest.raises(ConfigurationError, match="holds a run without measure_speedup"):
        MeasuredRun(CONFIG, tmp_path)
    assert (tmp_path / "config.toml").read_text() == before


def test_compiled_networks_cannot_be_measured(tmp_path):
    with pytest.raises(ConfigurationError, match="compile"):
        MeasuredRun(replace(CONFIG, compile=True), tmp_path)


class _StopAt:
    def __init__(self, step):
        self.step = step

    def stepped(self, run):
        run.stop_requested = run.step == self.step

    def __getattr__(self, name):
        return lambda *_: None
