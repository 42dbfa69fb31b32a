"""Defaults that changed: what was stored before keeps its meaning."""

import inspect
from dataclasses import replace

import pytest

from regrow import sparsify
from regrow.arguments import Sparse
from regrow.config import Config
from regrow.defaults import GENTLE, LETTER, as_stored, differing, named, shortest
from regrow.errors import StateError
from regrow.experiments.analyses.windows import dense_share
from regrow.methods import METHODS
from regrow.presets import PRESETS, PUBLISHED
from tests.support.training import sparse_run

FIRST_HASH = "6b6f4e29bf"  # of results/mnist-compression: LeNet-300-100, 5%, seed 0


def with_options(config, options):
    return replace(config, sparse=replace(config.sparse, options=options))


def test_the_first_rows_are_of_the_letter_and_no_other_rule():
    first = replace(PUBLISHED["mnist-lenet300"], sparse=replace(PUBLISHED["mnist-lenet300"].sparse, execution="sparse"))
    first = replace(first, evaluate_every=10)
    assert first.identity() == FIRST_HASH
    assert with_options(first, {}).identity() == with_options(first, GENTLE).identity() != FIRST_HASH


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, GENTLE),
        (GENTLE, GENTLE),
        (LETTER, {}),
        ({"grown_momentum": "keep", "warmup": 0}, {}),
        ({"grown_momentum": "zero"}, {"grown_momentum": "zero", "warmup": 0.5}),
        ({"grown_momentum": "zero", "warmup": 0.0}, {"grown_momentum": "zero"}),
        ({"reference": True}, {"reference": True}),
        ({"prune_rate": 0.5, **LETTER}, {"prune_rate": 0.5}),
    ],
    ids=str,
)
def test_what_is_told_reads_back_as_the_same_run(options, told):
    assert differing("sparse-momentum", options) == told
    again = as_stored("sparse-momentum", told)
    assert differing("sparse-momentum", again) == told
    assert named("sparse-momentum", again) == named("sparse-momentum", options)
    short = shortest("sparse-momentum", again)
    assert named("sparse-momentum", short) == named("sparse-momentum", options)


def test_other_methods_say_what_they_are_given():
    for way in (named, as_stored, differing, shortest):
        assert way("rigl", {"prune_rate": 0.3}) == {"prune_rate": 0.3}


def test_the_defaults_are_those_of_method_and_function():
    parameters = inspect.signature(METHODS["sparse-momentum"]).parameters
    assert parameters["grown_momentum"].default == GENTLE["grown_momentum"]
    assert inspect.signature(sparsify).parameters["window_tolerance"].default == Sparse().window_tolerance == 0.1
    assert Config().sparse.window_tolerance == PRESETS["demo"].sparse.window_tolerance


@pytest.mark.parametrize("name", [name for name in PRESETS if name.startswith(("mnist", "cifar"))])
def test_few_steps_need_dense_gradients(name):
    assert dense_share(PRESETS[name]) <= 0.07


def test_a_state_from_before_goes_on_by_the_letter_only():
    runs = [sparse_run(**LETTER), sparse_run(), sparse_run(**LETTER), sparse_run(**GENTLE)]
    letter, gentle, like_letter, like_gentle = (handle for _, _, handle in runs)
    state = letter.state_dict()
    assert state["identity"]["options"] == {}  # as it was when the letter was the default
    with pytest.raises(StateError, match="options"):
        gentle.load_state_dict(state)
    like_letter.load_state_dict(state)
    like_gentle.load_state_dict(gentle.state_dict())
