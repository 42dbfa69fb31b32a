import shlex
from dataclasses import replace

import pytest

from regrow.cli.configured import read_for_training
from regrow.cli.main import parse
from regrow.config import Data, Optimizer, Schedule, Sparse
from regrow.presets import PRESETS
from regrow.report.command import command


def parsed(line):
    words = shlex.split(line)
    assert words[0] == "regrow"
    return read_for_training(parse(words[1:]))


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_its_own_command(name):
    assert parsed(command(PRESETS[name])).identity() == PRESETS[name].identity()


@pytest.mark.parametrize(
    "changes",
    [
        {"epochs": 3, "seed": 7},
        {"compile": True, "channels_last": False},
        {"sparse": Sparse(method="rigl", density=0.2, options={"prune_rate": 0.4})},
        {"sparse": Sparse(density=0.2, execution="auto")},
        {
            "sparse": Sparse(method="l0", density=1.0),
            "optimizer": Optimizer("adam", lr=1e-3, weight_decay=0.0),
            "schedule": Schedule("cosine"),
        },
        {"data": Data("/my data/set", batch=32), "schedule": Schedule("cosine", epochs=(1.5, 2.0), warmup_epochs=1.0)},
        {"model_options": {"conv_relu": False}, "model": "lenet5"},
    ],
)
def test_the_command_gives_the_configuration_back(changes):
    config = replace(PRESETS["demo"], **changes)
    assert parsed(command(config)).identity() == config.identity()


def test_how_often_to_save_is_left_out():
    assert (
        command(replace(PRESETS["mnist-lenet5"], keep_checkpoints=9))
        == "regrow train mnist-lenet5 --sparse.execution masked"
    )
