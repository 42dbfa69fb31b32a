"""A handle's state as tensors and plain numbers, and back, checked before anything changes."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.hooks import RemovableHandle

from regrow.errors import StateError
from regrow.form import check_form, check_sizes
from regrow.gaps import decode
from regrow.identity import KNOWN_TO_ALL, difference, identity_of
from regrow.marks import Marks
from regrow.support import Support
from regrow.topology.journal import coded, decoded, pack_records, unpack_records

if TYPE_CHECKING:
    from regrow.handle import Handle
    from regrow.parameter import SparseParameter

VERSION = 1
_LOST = 1e-3
"""Share of non-zero weights that conversion to another type may round to zero."""
_KEYS = {
    "version", "identity", "shapes", "step", "updates", "round", "counts", "memory", "journal", "masks", "start_masks", "ever_masks",
    "layer_memory", "rewind_weights", "parameters", "window_steps",
}  # fmt: skip


class LoadWatcher:
    """Notices ``load_state_dict`` on a module that owns a sparse parameter.

    Modules carry it along when copied or pickled: it then watches for nobody, so that no copy of a model drags a handle along.
    """

    def __init__(self, handle: Handle | None = None) -> None:
        self._handle = None if handle is None else weakref.ref(handle)

    def __call__(self, *_: Any) -> None:
        """Weights were loaded: look at them before the next step."""
        handle = None if self._handle is None else self._handle()
        if handle is not None:
            handle.distrust()

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """A copy that watches for nobody."""
        return type(self), ()


class FirstPass(LoadWatcher):
    """Looks at loaded weights before the first forward pass: evaluation must not wait for a step that never comes."""

    hook: RemovableHandle | None = None

    def __call__(self, *_: Any) -> None:
        """An error for weights that were lost, at each pass until they are there."""
        handle = None if self._handle is None else self._handle()
        if torch.jit.is_tracing() or torch.compiler.is_compiling() or torch.compiler.is_exporting():
            return
        if handle is not None:
            refuse_lost(handle)
        if self.hook is not None:
            self.hook.remove()


def watch_first_pass(handle: Handle) -> None:
    """Before all other hooks, which may put in the weights that training computes with."""
    if handle.trained.weighting is None or not handle.trained.weighting.trains_otherwise:
        watcher = FirstPass(handle)
        watcher.hook = handle.model.register_forward_pre_hook(watcher, prepend=True)


def export_state(handle: Handle, journal: bool = True) -> dict[str, Any]:
    """Masks as bits, counters, window, shadow weights; the journal packed, or left to whoever keeps it elsewhere."""
    return {
        "version": VERSION,
        "identity": _identity(handle),
        "storage": handle.settings.storage,
        "shapes": {sparse.name: list(sparse.shape) for sparse in handle.parameters},
        "step": handle.step,
        "updates": handle.network.updates,
        "round": handle.round,
        "counts": list(handle.network.counts),
        "memory": dict(handle.network.memory),
        "journal": pack_records(handle.journal) if journal else None,
        "masks": {sparse.name: _coded(sparse.support, handle.settings.storage) for sparse in handle.parameters},
        "start_masks": {
            layer.name: bits.clone()
            for layer, bits in zip(handle.network.layers, handle.network.start_masks, strict=True)
        },
        "ever_masks": {
            layer.name: bits.clone()
            for layer, bits in zip(handle.network.layers, handle.network.ever_masks, strict=True)
        },
        "layer_memory": {
            layer.name: {key: value.clone() for key, value in memory.items()}
            for layer, memory in zip(handle.network.layers, handle.network.layer_memory, strict=True)
        },
        "rewind_weights": {name: weight.clone() for name, weight in handle.rewind_weights.items()},
        "parameters": {sparse.name: _tensors(sparse) for sparse in handle.parameters},
        "nonzeros": {sparse.name: int(sparse.parameter.detach().count_nonzero()) for sparse in handle.parameters},
        "window_steps": {sparse.name: sparse.moments.seen for sparse in handle.parameters},
        "execution": handle.switch.state(),
        "side": handle.trained.state(),
        "finished": handle.finished,
        "measured_costs": None if handle.network.prices is None else handle.network.prices.state(),
        "dense_milliseconds": None if handle.network.prices is None else handle.network.prices.dense,
    }


def import_state(handle: Handle, state: dict[str, Any]) -> None:
    """Restore what :func:`export_state` wrote."""
    _check(handle, state)
    journal = unpack_records(state["journal"])
    handle.step, handle.network.updates, handle.round = state["step"], state["updates"], state["round"]
    handle.network.counts = list(state["counts"])
    handle.network.memory = dict(state["memory"])
    handle.network.journal = journal
    handle.network.start_masks = [state["start_masks"][layer.name].clone() for layer in handle.network.layers]
    handle.network.ever_masks = [state["ever_masks"][layer.name].clone() for layer in handle.network.layers]
    handle.network.layer_memory = [
        {
            key: value.clone().to(layer.parameter.device)
            for key, value in state["layer_memory"].get(layer.name, {}).items()
        }
        for layer in handle.network.layers
    ]
    handle.rewind_weights = {name: weight.clone() for name, weight in state["rewind_weights"].items()}
    handle.saved_nonzeros = dict(state.get("nonzeros") or {})
    storage, masks = handle.settings.storage, state["masks"]
    handle.network.set_masks({s.name: _of(s, decoded(masks[s.name], s.shape, storage)) for s in handle.parameters})
    for sparse in handle.parameters:
        saved = {
            key: value.clone().to(sparse.parameter.device)
            for key, value in state["parameters"].get(sparse.name, {}).items()
        }
        sparse.incoming, sparse.moments.last = None, None
        sparse.theta = saved.get("theta")
        sparse.reach = Support(saved["reach"]) if "reach" in saved else None
        sparse.moments.first, sparse.moments.second = saved.get("first"), saved.get("second")
        sparse.moments.seen = state["window_steps"][sparse.name]
        where = saved.get("candidates")
        found = None if where is None else Marks(sparse.shape, decode(where, sparse.shape.numel()))
        sparse.moments.reach = None if found is None else Support(found)
    handle.trained.restore(state.get("side"), bool(state.get("finished")))
    if handle.network.prices is not None:
        handle.network.prices.restore(state.get("measured_costs"), state.get("dense_milliseconds") or 0.0)
    handle.switch.refresh()  # kernels compute gradients where weights reach, which was not yet known when the masks came
    handle.switch.restore(state.get("execution"))


def _coded(support: Support, storage: str) -> torch.Tensor:
    return support.bits.clone() if storage == "dense" else coded(support.marks, storage)


def _of(sparse: SparseParameter, mask: torch.Tensor | Marks) -> torch.Tensor | Marks:
    return mask.dense() if isinstance(mask, Marks) and not sparse.is_compact else mask


def _tensors(sparse: Any) -> dict[str, torch.Tensor]:
    reach = sparse.moments.reach
    found = {
        "theta": sparse.theta,
        "reach": None if sparse.reach is None else sparse.reach.mask,
        "first": sparse.moments.first,
        "second": sparse.moments.second,
        "candidates": None if reach is None else coded(reach.marks, "compact"),
    }
    return {key: value.clone() for key, value in found.items() if value is not None}


def _identity(handle: Handle) -> dict[str, Any]:
    return identity_of(handle.network)


def fixed_density(wanted: float) -> StateError:
    """The error for a density that is set after the start."""
    return StateError(
        f"density cannot be set: handle.detach(), then sparsify again with density={wanted!r} and start='magnitude' (fewer weights) "
        "or start='zeros' (more)"
    )


def refuse_lost(handle: Handle) -> None:
    """An error for weights that are zero where the saved ones were not."""
    for sparse in handle.parameters:
        saved, found = handle.saved_nonzeros.get(sparse.name, 0), int(sparse.parameter.detach().count_nonzero())
        if found < saved * (1 - _LOST):
            raise StateError(
                f"{saved - found:,} of {saved:,} weights of {sparse.name} are zero that were not when this state was saved: sparsify "
                "zeroes weights that were loaded before it. Load after it: regrow.sparsify, model.load_state_dict, "
                "handle.load_state_dict; for sparse weights without a handle's state say start='zeros'"
            )


def _check(handle: Handle, state: dict[str, Any]) -> None:
    missing = _KEYS - set(state) if isinstance(state, dict) else _KEYS
    if missing:
        raise StateError(f"this is not a handle's state: {_some(sorted(missing))} missing; save handle.state_dict()")
    if type(state["version"]) is not int or state["version"] != VERSION:
        raise StateError(
            f"state of format {state['version']} cannot be read by this release, which reads format {VERSION}"
        )
    check_form(state)
    own_run, saved_run = _identity(handle), state["identity"]
    if lost := KNOWN_TO_ALL - set(saved_run):
        raise StateError(f"the saved state does not say its {min(lost)}: it is damaged, take an older one")
    if (key := difference(own_run, saved_run)) is not None:
        raise StateError(
            f"the saved run has {key} = {saved_run[key]!r}, this one {own_run[key]!r}: sparsify with the same arguments before loading; or "
            "begin another run from its weights: load them alone, then sparsify with start='zeros' (for a lower density 'magnitude')"
        )
    if (saved_as := state.get("storage", "dense")) != handle.settings.storage:
        raise StateError(
            f"the state was saved with storage={saved_as!r}, this run has {handle.settings.storage!r}: sparsify with storage={saved_as!r} "
            "to load it; weights alone (model.load_state_dict, start='zeros') go from one to the other"
        )
    if handle.network.prices is not None:
        _check_costs(handle, state)
    theirs, own = set(state["masks"]), {sparse.name for sparse in handle.parameters}
    if theirs != own:
        odd = sorted(theirs ^ own)[0]
        where = "saved state" if odd in theirs else "model"
        raise StateError(f"layer {odd} exists only in the {where}: load the state into the same model and scope")
    names = {layer.name for layer in handle.network.layers}
    for key in ("start_masks", "ever_masks"):
        if odd := set(state[key]) ^ names:
            raise StateError(
                f"the saved {key} do not fit layer {min(odd)}: load the state into the same model and scope"
            )
    for sparse in handle.parameters:
        saved, mine = tuple(state["shapes"].get(sparse.name, ())), tuple(sparse.shape)
        if saved != mine:
            raise StateError(
                f"{sparse.name} has shape {saved} in the saved state, {mine} in this model: load it into the same model"
            )
        if handle.settings.storage == "compact":
            decode(state["masks"][sparse.name], sparse.shape.numel())
        elif (bits := state["masks"][sparse.name].numel()) != (expected := (sparse.shape.numel() + 7) // 8):
            raise StateError(
                f"the saved mask of {sparse.name} has {bits} bytes instead of {expected}: the state is damaged"
            )
    check_sizes(handle, state)
    handle.trained.check(state.get("side"), bool(state.get("finished")))


def _some(names: list[str]) -> str:
    """Names of what is missing: a few say enough of a file that is something else."""
    return ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:3])} and {len(names) - 3} more"


def _check_costs(handle: Handle, state: dict[str, Any]) -> None:
    """A run goes on with the prices it began with: they cannot be measured anew in the middle."""
    saved, names = state.get("measured_costs"), {layer.name for layer in handle.network.layers}
    if saved is None and state["step"] > 0:
        raise StateError("the saved run had no measured costs: sparsify with its costs before loading, not 'measured'")
    if saved is not None and set(saved) != names:
        odd = min(set(saved) ^ names)
        raise StateError(f"the saved costs do not fit layer {odd}: load the state into the same model and scope")
