"""Feature analysis of real, tiny runs of a dense and a sparse network."""

import shutil
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import replace

import numpy as np
import pytest
from torch import nn

from regrow.config import Config, Data, Sparse
from regrow.experiments.analyses import feature_pairs
from regrow.experiments.analyses.feature_pairs import _read, _write, channels_of, pairs
from regrow.experiments.experiment import Cell, Experiment
from regrow.experiments.reproduce import collect, reproduce
from regrow.experiments.rows import row_of
from regrow.experiments.sweep import Outcome
from regrow.models import registry
from regrow.training.run import Run
from tests.experiments.fakes import finish

CONFIG = Config(
    model="tiny-features",
    epochs=3,
    data=Data("mnist-sample", batch=100),
    sparse=Sparse(method="dense", density=1.0),
)
CELLS = [
    Cell("tiny-features", "dense", 1.0, CONFIG),
    Cell("tiny-features", "sparse momentum", 0.5, replace(CONFIG, sparse=Sparse(density=0.5, update_every=18))),
]


def tiny(input_shape=(1, 28, 28), num_classes=10):
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(1, 8, 3, stride=4),
            bn1=nn.BatchNorm2d(8),
            relu1=nn.ReLU(),
            conv2=nn.Conv2d(8, 16, 3, stride=4),
            bn2=nn.BatchNorm2d(16),
            relu2=nn.ReLU(),
            pool=nn.AdaptiveAvgPool2d(1),
            flatten=nn.Flatten(),
            fc=nn.Linear(16, num_classes),
        )
    )


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    record = registry.ModelInfo("tiny-features", (1, 28, 28), 10, "for a test", tiny)
    monkeypatch.setitem(registry._REGISTRY, record.name, record)


class Here:
    """Trains in this process."""

    slots = 1

    def submit(self, call, job, folder, threads):
        future = Future()
        Run(job.config, folder / job.key).train()
        future.set_result(Outcome(job, 0.0))
        return future

    def stop(self):
        pass


def test_pairs_are_compared_and_written(tmp_path):
    experiment = Experiment("features", "specialisation", 1, lambda: CELLS, "bars")
    done = reproduce(experiment, CELLS, [0], tmp_path / "runs", tmp_path, Here())
    (text,) = done.texts
    lines = text.splitlines()
    assert lines[0] == "Class specialisation, tiny-features, seed 0"
    assert [line.split(" | ")[0] for line in lines[4:]] == ["| all", "| relu1", "| relu2"]
    assert (tmp_path / "specialisation.md").read_text() == text
    assert (tmp_path / "specialisation-tiny-features-s0.png").stat().st_size > 1000
    histogram = (tmp_path / "specialisation-tiny-features-s0.csv").read_text().splitlines()
    assert len(histogram) == 1 + 2 * 49
    assert histogram[0] == "layer,from,to,dense,sparse"

    shutil.rmtree(tmp_path / "runs")
    again = collect(experiment, CELLS, [0], tmp_path / "runs", tmp_path)
    assert again.texts == done.texts, "the stored channels are enough"


def test_only_what_is_missing_is_measured(tmp_path, monkeypatch):
    jobs = [job for cell in CELLS for job in cell.jobs([0])]
    rows = []
    for job in jobs:
        finish(job, tmp_path)
        rows.append({key: str(value) for key, value in row_of(job.config, tmp_path / job.key).items()})
    (pair,) = pairs(CELLS, rows)
    known = {jobs[0].config.identity(): {"relu1": np.array([0.5])}, "another run": {"relu1": np.array([0.2])}}
    _write(tmp_path / f"{pair.name}-channels.csv", known)
    monkeypatch.setattr(feature_pairs, "run_specialisation", lambda folder: {"relu1": np.array([len(folder.parts)])})
    dense, sparse = channels_of(pair, tmp_path, tmp_path, measures=True)
    assert (dense["relu1"], sparse["relu1"]) == (0.5, len((tmp_path / "x").parts))
    assert set(_read(tmp_path / f"{pair.name}-channels.csv")) == {*known, jobs[1].config.identity()}


def test_channels_are_measured_where_the_runs_are_and_not_by_tables_only(tmp_path):
    for job in (job for cell in CELLS for job in cell.jobs([0])):
        finish(job, tmp_path / "runs")
    experiment = Experiment("features", "specialisation", 1, lambda: CELLS, "bars")
    (text,) = collect(experiment, CELLS, [0], tmp_path / "runs", tmp_path).texts
    assert text.splitlines()[2].startswith("Not analysed yet: the same command without --tables-only")


def test_channels_come_back_from_the_file_as_they_were(tmp_path):
    found = {"a": {"relu1": np.array([0.1, 1 / 3]), "relu2": np.array([])}, "b": {"relu1": np.array([0.25])}}
    _write(tmp_path / "channels.csv", found)
    again = _read(tmp_path / "channels.csv")
    assert {run: list(layers) for run, layers in again.items()} == {"a": ["relu1", "relu2"], "b": ["relu1"]}
    assert all((again[run][layer] == of).all() for run, layers in found.items() for layer, of in layers.items())


def test_a_collapsed_network_is_not_analysed(tmp_path):
    for job, error in zip((job for cell in CELLS for job in cell.jobs([0])), (2.0, 90.2), strict=True):
        finish(job, tmp_path / "runs", error)
    experiment = Experiment("features", "specialisation", 1, lambda: CELLS, "bars")
    (text,) = collect(experiment, CELLS, [0], tmp_path / "runs", tmp_path).texts
    assert text.splitlines()[2] == "Not analysed: one of the two networks has collapsed."


def test_unfinished_pairs_wait(tmp_path):
    (dense,) = CELLS[0].jobs([0])
    finish(dense, tmp_path)
    assert (
        list(pairs(CELLS, [{key: str(value) for key, value in row_of(dense.config, tmp_path / dense.key).items()}]))
        == []
    )
