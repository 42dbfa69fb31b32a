"""The form of a saved state: every entry of the right kind and size, known before anything is used.

Saved state may come from anywhere; what is inside must not end in an error half-way, let alone in memory that is not the run's.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regrow.errors import StateError
from regrow.execution.choosing.auto import Verdict
from regrow.gaps import decode
from regrow.kinds import Test, is_count, is_number, or_none

if TYPE_CHECKING:
    from regrow.handle import Handle


def check_form(state: dict[str, Any]) -> None:
    """Refuse a state whose entries are not of the kinds that :func:`regrow.state.export_state` writes."""
    for key, test in _TESTS.items():
        if not test(state.get(key)):
            raise _foreign(key)


def check_sizes(handle: Handle, state: dict[str, Any]) -> None:
    """Refuse a state of the right form whose tensors and counts have other sizes than this handle's."""
    layers, sizes = handle.network.layers, {sparse.name: sparse.shape for sparse in handle.parameters}
    if len(state["counts"]) != len(layers):
        raise _foreign("counts")
    for key in ("start_masks", "ever_masks"):
        for layer in layers:
            if handle.settings.storage == "compact":
                decode(state[key][layer.name], layer.shape.numel())
            elif state[key][layer.name].numel() != (math.prod(layer.shape) + 7) // 8:
                raise _foreign(key)
    if any(name in state["rewind_weights"] and state["rewind_weights"][name].shape != sizes[name] for name in sizes):
        raise _foreign("rewind_weights")
    if any(name not in state["window_steps"] for name in sizes):
        raise _foreign("window_steps")
    if state.get("nonzeros") is not None and state["nonzeros"].keys() != sizes.keys():
        raise _foreign("nonzeros")
    for name, size in sizes.items():
        kept = state["parameters"].get(name)
        if kept is None or not _fits(kept, size):
            raise _foreign("parameters")


def _fits(kept: dict[str, Tensor], size: torch.Size) -> bool:
    """Whether tensors have the shape of the layer; those of a window of candidates, one number for each."""
    found = dict(kept)
    if (where := found.pop("candidates", None)) is not None:
        size = torch.Size([len(decode(where, size.numel()))])
    return all(tensor.shape == size for tensor in found.values())


def _foreign(key: str) -> StateError:
    return StateError(f"{key} of the saved state is not what this handle saves: it is damaged, or of another run")


def _mapping(value: Any, test: Test) -> bool:
    return isinstance(value, dict) and all(isinstance(key, str) for key in value) and all(map(test, value.values()))


def _tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def _bits(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype == torch.uint8 and value.ndim == 1


def _kept(tensors: Any) -> bool:
    """What a sparse parameter keeps: shadow weights, averages, which weights gradients reach, and which are candidates."""
    kinds = {"reach": torch.bool, "candidates": torch.uint8}
    coded = kinds.values()
    return _mapping(tensors, _tensor) and all(
        tensor.dtype == kinds[key] if key in kinds else tensor.dtype not in coded for key, tensor in tensors.items()
    )


def _execution(value: Any) -> bool:
    try:
        if not isinstance(value, dict):
            return False
        if value["decision"] is not None:
            Verdict.from_dict(value["decision"])
        return isinstance(value["execution"], str) and isinstance(value["pending"], bool)
    except (KeyError, TypeError, AttributeError, ValueError):
        return False


def _side(value: Any) -> bool:
    """Side parameters: their values, their optimizer's state by their places, their first rates."""
    if not isinstance(value, dict) or {*value} != {"values", "optimizer", "start"}:
        return False
    slots = _mapping(value["optimizer"], lambda kept: _mapping(kept, lambda _: True))
    return _mapping(value["values"], _tensor) and slots and isinstance(value["start"], list)


_TESTS: dict[str, Test] = {
    "identity": lambda value: _mapping(value, lambda _: True),
    "shapes": lambda value: _mapping(value, lambda size: isinstance(size, (list, tuple)) and all(map(is_count, size))),
    **dict.fromkeys(("step", "updates", "round"), is_count),
    "counts": lambda value: isinstance(value, (list, tuple)) and all(map(is_count, value)),
    "memory": lambda value: _mapping(value, lambda number: isinstance(number, (int, float))),
    **dict.fromkeys(("masks", "start_masks", "ever_masks"), lambda value: _mapping(value, _bits)),
    "layer_memory": lambda value: _mapping(value, lambda kept: _mapping(kept, _tensor)),
    "rewind_weights": lambda value: _mapping(value, _tensor),
    "parameters": lambda value: _mapping(value, _kept),
    "window_steps": lambda value: _mapping(value, is_count),
    # None is of releases that did not write them.
    "execution": or_none(_execution),
    "nonzeros": or_none(lambda value: _mapping(value, is_count)),
    "side": or_none(_side),
    "finished": or_none(lambda value: isinstance(value, bool)),
    "measured_costs": or_none(lambda value: _mapping(value, is_number)),
    "dense_milliseconds": or_none(is_number),
}
