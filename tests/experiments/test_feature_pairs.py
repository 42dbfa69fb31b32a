"""Feature analysis of real, tiny runs of a dense and a sparse network."""

from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import replace

import pytest
from torch import nn

from regrow.config import Config, Data, Sparse
from regrow.experiments.experiment import Cell, Experiment
from regrow.experiments.feature_pairs import finished_pairs
from regrow.experiments.reproduce import collect, reproduce
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


def test_a_collapsed_network_is_not_analysed(tmp_path):
    for job, error in zip((job for cell in CELLS for job in cell.jobs([0])), (2.0, 90.2), strict=True):
        finish(job, tmp_path / "runs", error)
    experiment = Experiment("features", "specialisation", 1, lambda: CELLS, "bars")
    (text,) = collect(experiment, CELLS, [0], tmp_path / "runs", tmp_path).texts
    assert text.splitlines()[2] == "Not analysed: one of the two networks has collapsed."


def test_unfinished_pairs_wait(tmp_path):
    assert list(finished_pairs(CELLS, [0], tmp_path)) == []
