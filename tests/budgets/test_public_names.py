"""The public names are a promise: changing them means changing this list on purpose."""

import inspect

import pytest

import regrow

NAMES = [
    "Grow",
    "Handle",
    "LayerView",
    "Method",
    "Prune",
    "Redistribute",
    "Scope",
    "When",
    "compact_form",
    "freeze",
    "handle_of",
    "list_methods",
    "load",
    "needs",
    "per_weight",
    "register",
    "save",
    "sparsify",
]
HANDLE = [
    "budget", "check", "densify", "density", "detach", "distrust", "execute", "explain", "finish", "finished", "freeze", "initialise",
    "journal", "load_state_dict", "mask_", "masks", "masks_from_zeros", "memory",
    "method", "model", "needs_missing_gradients", "nonzeros", "numel", "optimizer", "parameters", "penalty", "plan", "plot", "prune_rate",
    "rewind", "state_dict", "updates",
]  # fmt: skip
ARGUMENTS = [
    "model", "optimizer", "method", "density", "steps", "update_every", "steps_per_epoch", "scope", "distribution", "seed",
    "window_tolerance", "window_stride", "window_candidates", "momentum", "prune", "redistribute", "grow", "calibration", "samples",
    "costs", "macs", "milliseconds", "execution", "native_step", "storage",
    "process_group", "start", "options",
]  # fmt: skip


def test_public_names():
    assert sorted(regrow.__all__) == NAMES
    assert set(NAMES) <= set(dir(regrow))


def test_names_of_the_handle():
    hooks = {"before_step", "after_step"}  # called by the optimizer, not by users
    assert sorted({n for n in vars(regrow.Handle) if not n.startswith("_")} - hooks) == HANDLE


def test_arguments_of_sparsify():
    assert list(inspect.signature(regrow.sparsify).parameters) == ARGUMENTS


@pytest.mark.parametrize("name", NAMES)
def test_public_name_is_documented(name):
    assert inspect.getdoc(getattr(regrow, name))


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="sparsity"):
        _ = regrow.sparsity
