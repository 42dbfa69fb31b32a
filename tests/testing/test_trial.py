"""The small runs of the conformance suite themselves."""

import torch

from regrow.testing.trial import STEPS, Subject, Trial, all_alike, dead_units, differing, flatten


def test_a_trial_is_a_function_of_its_arguments():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first, second = Trial(Subject("rigl")), Trial(Subject("rigl"))
    assert torch.equal(torch.get_rng_state(), before)
    list(first.run()), list(second.run())
    assert first.done == STEPS
    assert differing(first.tensors(), second.tensors()) == []


def test_what_differs_is_named():
    a = {"x": torch.tensor([1.0, float("nan")]), "y": torch.zeros(2)}
    b = {"x": torch.tensor([1.0, float("nan")]), "y": torch.ones(2), "z": torch.zeros(1)}
    assert differing(a, b) == ["y", "z"]


def test_the_prescribed_count_of_a_schedule_follows_the_density_curve():
    trial = Trial(Subject("gradual-pruning"))
    counts = [trial.prescribed() for _ in trial.run()]
    assert counts[0] == 224
    assert counts[-1] == 67
    assert counts == sorted(counts, reverse=True)
    assert len(set(counts)) > 3


def test_dead_units_have_no_gradient_and_tied_weights_tie():
    trial = Trial(Subject("static"), network=dead_units)
    trial.backward()
    assert not trial.model[0].weight.grad.any()
    assert not trial.model[3].weight.grad.any()
    assert len(all_alike()[0].weight.unique()) == 1


def test_flattened_states_compare_every_number():
    state = {"a": [1, {"b": torch.zeros(2)}], "c": None}
    assert flatten(state) == flatten({"a": [1, {"b": torch.zeros(2)}], "c": None})
    assert flatten(state).keys() == {"state.a.0", "state.a.1.b", "state.c"}
    assert flatten(state) != flatten({"a": [1, {"b": torch.tensor([0.0, -0.0])}], "c": None})
