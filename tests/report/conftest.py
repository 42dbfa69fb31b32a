"""Small real runs, made once."""

import shutil
from dataclasses import replace

import pytest

from regrow.config import Data, Sparse
from regrow.presets import PRESETS
from regrow.report.reading import read_run
from regrow.training.run import Run

_SMALL = replace(PRESETS["demo"], epochs=4, log_every=4, data=Data("mnist-sample", batch=600))


def small(**changes):
    """A run of 6 steps per epoch."""
    return replace(_SMALL, **changes)


def with_method(method, density=0.1, **changes):
    return small(sparse=Sparse(method=method, density=density), **changes)


@pytest.fixture(scope="session")
def train(tmp_path_factory):
    """Train a configuration once per session and give its folder; tests must not write in it."""
    made = {}

    def run(config):
        key = repr(config)
        if key not in made:
            made[key] = tmp_path_factory.mktemp("runs") / f"{config.model}-{config.sparse.method}"
            Run(config, made[key]).train()
        return made[key]

    return run


@pytest.fixture(scope="session")
def finished(train):
    """A finished run of sparse momentum on LeNet-300-100."""
    return train(small())


@pytest.fixture(scope="session")
def convolutional(train):
    return train(small(model="lenet5", epochs=2, max_steps=8))


@pytest.fixture
def editable(finished, tmp_path):
    """A copy to damage."""
    return shutil.copytree(finished, tmp_path / "run")


@pytest.fixture
def files(finished):
    return read_run(finished)
