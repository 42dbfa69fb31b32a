"""Saved state of a wrong form is refused before anything changes."""

import copy

import pytest
import torch

from regrow.errors import StateError
from tests.support.training import batches, sparse_run, train

KEYS = (
    "identity", "shapes", "step", "updates", "round", "counts", "memory", "journal", "masks", "start_masks", "ever_masks", "layer_memory",
    "rewind_weights", "parameters", "window_steps", "execution", "measured_costs", "version", "nonzeros", "side", "finished",
    "dense_milliseconds",
)  # fmt: skip
HARMLESS = [
    ("execution", None), ("measured_costs", None), ("measured_costs", {}), ("measured_costs", {"a": 1}), ("rewind_weights", {}),
    ("layer_memory", {}), ("memory", {}), ("memory", {"a": 1}), ("journal", []), ("journal", None), ("nonzeros", None), ("side", None),
    ("finished", None), ("dense_milliseconds", None), ("dense_milliseconds", -1), ("dense_milliseconds", 0.5),
]  # fmt: skip
VALUES = [None, -1, 0.5, "text", [], [[]], {}, {"a": 1}, {"0.weight": [1]}, torch.ones(3)]


def harmless(key, value):
    return not isinstance(value, torch.Tensor) and (key, value) in HARMLESS


@pytest.fixture(scope="module", params=["sparse-momentum", "top-kast"])
def run(request):
    model, optimizer, handle = sparse_run(method=request.param)
    train(model, optimizer, batches(6))
    yield handle  # beside its optimizer, which it does not keep
    handle.detach()


@pytest.mark.parametrize(("key", "value"), [(k, v) for k in KEYS for v in VALUES if not harmless(k, v)], ids=repr)
def test_entries_of_a_wrong_kind_are_refused(run, key, value):
    state = {**run.state_dict(), key: value}
    before = copy.deepcopy(run.state_dict())
    with pytest.raises(StateError):
        run.load_state_dict(state)
    assert run.step == before["step"]
    assert all(torch.equal(mask, before["masks"][name]) for name, mask in run.state_dict()["masks"].items())


@pytest.mark.parametrize(("key", "value"), HARMLESS, ids=repr)
def test_entries_of_a_kind_that_some_runs_save_are_taken(run, key, value):
    before = copy.deepcopy(run.state_dict())
    run.load_state_dict({**before, key: value})
    assert run.step == before["step"]
    assert all(torch.equal(mask, before["masks"][name]) for name, mask in run.state_dict()["masks"].items())
    run.load_state_dict(before)


@pytest.mark.parametrize("key", ["start_masks", "ever_masks", "parameters"])
def test_tensors_of_a_wrong_size_are_refused(run, key):
    state = copy.deepcopy(run.state_dict())
    name = next(iter(state[key]))
    if key == "parameters":
        state[key][name]["first"] = torch.zeros(4)
    else:
        state[key][name] = state[key][name][:-1]
    with pytest.raises(StateError, match=key):
        run.load_state_dict(state)


def test_too_few_budgets_are_refused(run):
    with pytest.raises(StateError, match="counts"):
        run.load_state_dict({**run.state_dict(), "counts": [3]})


@pytest.mark.parametrize(
    ("key", "value"), [("dense_milliseconds", 10**400), ("measured_costs", {"0": 10**400})], ids=["time", "costs"]
)
def test_a_number_beyond_floats_is_refused(run, key, value):
    with pytest.raises(StateError, match=key):
        run.load_state_dict({**run.state_dict(), key: value})


def test_a_decision_of_a_wrong_form_is_refused(run):
    execution = {"execution": "auto", "pending": False, "decision": {"sparse": 3}}
    with pytest.raises(StateError, match="execution"):
        run.load_state_dict({**run.state_dict(), "execution": execution})


@pytest.fixture(scope="module")
def with_side():
    model, optimizer, handle = sparse_run(method="str", density=None)
    train(model, optimizer, batches(6))
    yield handle  # beside its optimizer, which it does not keep
    handle.detach()


@pytest.mark.parametrize(
    "damage",
    [
        lambda side: None,
        lambda side: {**side, "values": {}},
        lambda side: {**side, "values": {name: torch.ones(7, 7) for name in side["values"]}},
        lambda side: {**side, "start": []},
        lambda side: {**side, "start": None},
        lambda side: {**side, "optimizer": {"x": {}}},
        lambda side: {**side, "optimizer": {"999": {}}},
        lambda side: {"values": side["values"]},
    ],
)
def test_side_parameters_of_a_wrong_form_are_refused_before_anything_changes(with_side, damage):
    state = copy.deepcopy(with_side.state_dict())
    with pytest.raises(StateError, match="side"):
        with_side.load_state_dict({**state, "step": 0, "side": damage(state["side"])})
    assert with_side.step == state["step"] > 0
    with_side.load_state_dict(state)
