"""Layers whose ``weight`` parameter is the vector of present entries.

To everybody who asks for ``module.weight`` it is the ordinary dense-shaped weight, made for the occasion. ``state_dict()`` has that form
too, and so loads in plain torch; inside :func:`compact_form` it has values, columns and row pointer instead. Both are taken back.
"""

from __future__ import annotations

import contextlib
import contextvars
import copy
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from regrow import native
from regrow.errors import StateError, UnsupportedError
from regrow.marks import Marks, positions
from regrow.support import Support

_compact_form = contextvars.ContextVar("compact form", default=False)
_PARTS = ("values", "columns", "rows", "shape")
TOO_LARGE = 2**31
"""Positions from which on nothing of a layer's dense shape is made."""


@contextlib.contextmanager
def compact_form() -> Iterator[None]:
    """Inside, ``state_dict()`` of layers in compact storage holds present weights only: nothing dense is made, nothing dense is saved.

    Example:
        >>> with compact_form():
        ...     state = torch.nn.Linear(2, 2).state_dict()  # dense layers are saved as ever
        >>> sorted(state)
        ['bias', 'weight']
    """
    token = _compact_form.set(True)
    try:
        yield
    finally:
        _compact_form.reset(token)


class Lent:
    """Dense-shaped weights that were made for reading, as long as somebody has them: one that was written to is noticed.

    What is kept of each shares torch's count of writes, and no memory.
    """

    def __init__(self) -> None:
        self._counts: list[tuple[Tensor, weakref.ref[Tensor]]] = []

    def add(self, dense: Tensor) -> None:
        """Remember one; torch does not count writes where programs are recorded, transformed or for inference alone."""
        if dense.is_inference() or native.transformed() or torch.jit.is_tracing() or torch.compiler.is_compiling():
            return
        count = dense.detach()
        count.data = count.new_empty(0)
        self._drop_dead()
        self._counts.append((count, weakref.ref(dense)))

    def refuse_written(self, where: str) -> None:
        """Refuse to go on with a write that was lost."""
        if any(count._version for count, _ in self._counts):
            self._counts.clear()
            raise StateError(
                f"{where}its weight was written to, which changes nothing: it is stored compact, and module.weight is made for reading. "
                "Load weights (model.load_state_dict), or write before sparsify"
            )
        self._drop_dead()

    def _drop_dead(self) -> None:
        self._counts = [(count, dense) for count, dense in self._counts if count._version or dense() is not None]


class CompactLayer(nn.Module):
    """Mixin: a sparse layer with a compact weight."""

    @property
    def weight(self) -> Tensor:
        """The dense-shaped weight, as a function of the present entries. It is made for reading: after a write the next pass refuses.

        Weights that were loaded before their masks are shown as they were loaded.
        """
        dense = self._dense()
        dense._is_param = True  # what model.get_parameter("layer.weight") asks for
        self.__dict__["_regrow_execution"].lent.add(dense)
        return dense

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        """Also what ``module.weight = nn.Parameter(...)`` calls: refused, as neither masks nor optimizer would know of it."""
        if name == "weight":
            raise StateError(
                f"{self.__dict__['_regrow_execution'].where()}its weight is stored compact and cannot be replaced: load weights "
                "(model.load_state_dict, without assign), or replace it before sparsify"
            )
        super().register_parameter(name, param)

    def _dense(self) -> Tensor:
        support, values = self._stored()
        if support.numel >= TOO_LARGE:
            raise UnsupportedError(
                f"a weight of shape {tuple(support.shape)} is too large to be shown dense: regrow.compact_form() has its present entries"
            )
        return values.new_zeros(support.numel).scatter(0, support.positions, values).view(support.shape)

    @property
    def _support(self) -> Support:
        return self.__dict__["_regrow_execution"].pattern.support

    def _stored(self) -> tuple[Support, Tensor]:
        """Which weights exist, and their values."""
        values = self._parameters["weight"]
        assert values is not None
        waiting = self.__dict__["_regrow_execution"].unplaced()
        if waiting is None:
            return self._support, values
        known, loaded = waiting
        return Support(Marks(self._support.shape, known)), loaded.to(values.dtype)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        key, (support, values) = f"{prefix}weight", self._stored()
        if not _compact_form.get() and support.numel < TOO_LARGE:
            destination[key] = self._dense() if keep_vars else self._dense().detach()
            return
        rows, columns = support.lists
        parts = (values.detach(), columns, rows, torch.tensor(list(support.shape)))
        del destination[key]
        destination.update({f"{key}.{part}": tensor for part, tensor in zip(_PARTS, parts, strict=True)})

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        key = f"{prefix}weight"
        found = self._loaded(state_dict, key)
        state = {name: value for name, value in state_dict.items() if not name.startswith(f"{key}.")}
        if found is not None:
            state[key] = self.__dict__["_regrow_execution"].take_loaded(*found)
        super()._load_from_state_dict(state, prefix, *args)

    def _loaded(self, state_dict: Mapping[str, Any], key: str) -> tuple[Tensor, Tensor] | None:
        """Positions and values of a saved weight in either form; None where there is none, or one that torch shall refuse."""
        shape = self._support.shape
        if f"{key}.values" in state_dict:
            return from_parts({part: state_dict.get(f"{key}.{part}") for part in _PARTS}, shape, key)
        dense = state_dict.get(key)
        if not isinstance(dense, Tensor) or dense.shape != shape:
            return None
        known = positions(dense != 0)
        return known, dense.detach().reshape(-1)[known]

    def __deepcopy__(self, memo: dict[int, Any]) -> nn.Module:
        """Alone, a copy is an ordinary dense layer: nobody would tell it of later topology updates. Its optimizer's copy stays compact."""
        parameter = self._parameters["weight"]
        assert parameter is not None
        together = id(parameter) in memo or self.__dict__["_regrow_execution"].only_compact
        kind = type(self) if together else dense_class(type(self))
        twin: nn.Module = nn.Module.__new__(kind)
        memo[id(self)] = twin
        if not together:
            memo[id(parameter)] = nn.Parameter(self._dense().detach(), parameter.requires_grad)
        kept = {key: value for key, value in self.__dict__.items() if together or key != "_regrow_execution"}
        twin.__dict__.update(copy.deepcopy(kept, memo))
        return twin


def from_parts(parts: Mapping[str, Any], shape: torch.Size, key: str) -> tuple[Tensor, Tensor]:
    """Positions and values of a weight saved in compact form, checked."""
    tensors = [parts[part] for part in _PARTS]
    if not all(isinstance(tensor, Tensor) and tensor.dim() == 1 for tensor in tensors):
        raise StateError(f"{key} was saved in compact form, but not all of {', '.join(_PARTS)}: the state is damaged")
    values, columns, rows, saved = tensors
    if tuple(saved.tolist()) != tuple(shape):
        raise StateError(f"{key} has shape {tuple(saved.tolist())} in the saved state, {tuple(shape)} in this model")
    length, counts = shape[1:].numel(), rows.diff()
    whole = len(rows) == shape[0] + 1 and int(rows[0]) == 0 and int(rows[-1]) == len(columns) == len(values)
    if not whole or bool((counts < 0).any()) or not _within(columns, length):
        raise StateError(
            f"the saved columns and rows of {key} are no positions of {tuple(shape)}: the state is damaged"
        )
    found = torch.repeat_interleave(torch.arange(shape[0]), counts) * length + columns.to(torch.int64)
    if len(found) > 1 and not bool((found.diff() > 0).all()):
        raise StateError(f"the saved columns of {key} do not ascend: the state is damaged")
    return found, values


def dense_form(state: Mapping[str, Any]) -> dict[str, Any]:
    """A ``state_dict()`` with every weight in its ordinary dense shape, whatever form it was saved in."""
    keys = [key.removesuffix(".values") for key in state if key.endswith(".values") and f"{key[:-7]}.columns" in state]
    parts = {f"{key}.{part}" for key in keys for part in _PARTS}
    found = {name: tensor for name, tensor in state.items() if name not in parts}
    for key in keys:
        shape = torch.Size(state[f"{key}.shape"].tolist())
        known, values = from_parts({part: state.get(f"{key}.{part}") for part in _PARTS}, shape, key)
        found[key] = values.new_zeros(shape.numel()).scatter(0, known, values).view(shape)
    return found


def _within(columns: Tensor, length: int) -> bool:
    return not len(columns) or (int(columns.min()) >= 0 and int(columns.max()) < length)


_KINDS: dict[type, type] = {}


def compact_class(kind: type) -> type:
    """The class of a sparse layer's module in compact storage."""
    if kind not in _KINDS:
        _KINDS[kind] = type(
            kind.__name__.replace("Sparse", "Compact", 1), (CompactLayer, kind), {"__reduce_ex__": _reduce}
        )
    return _KINDS[kind]


def sparse_class(kind: type) -> type:
    """The inverse of :func:`compact_class`; other classes pass through."""
    return next((sparse for sparse, made in _KINDS.items() if made is kind), kind)


def dense_class(kind: type) -> type:
    """The class of the dense layer behind one in compact storage."""
    from regrow.execution.modules.layers import dense_class as of_sparse

    return of_sparse(sparse_class(kind))


def _reduce(module: nn.Module, protocol: object) -> tuple:
    """The class cannot be found by its name: pickles make it anew."""
    return _blank, (dense_class(type(module)),), module.__dict__


def _blank(kind: type) -> nn.Module:
    from regrow.execution.modules.layers import sparse_class_of

    made = sparse_class_of(kind)
    assert made is not None
    return nn.Module.__new__(compact_class(made))
