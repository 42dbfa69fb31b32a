"""Supports as tensors: what torch operators are given, so that a compiled or exported program holds no address of this process."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from regrow.errors import StateError
from regrow.support import Support
from regrow.topology.journal import unpack

_lock = threading.Lock()
_owners = WeakTensorKeyDictionary()  # weight -> who counts those of its elements that lie outside its support
_known = WeakTensorKeyDictionary()  # operand -> (its version, a function that gives the support it stands for, or None)


def operand_of(support: Support) -> Tensor:
    """The support's bits, by which `support_of` finds it again."""
    bits = support.bits
    with _lock:
        if bits not in _known:
            # Weakly: the support owns its bits, which would keep it alive for ever.
            _known[bits] = (bits._version, weakref.ref(support))
    return bits


def support_of(operand: Tensor, shape: Sequence[int]) -> Support:
    """The support that an operand stands for; one from elsewhere (a loaded program) is unpacked when first met."""
    size = torch.Size(shape)
    if operand.dtype != torch.uint8 or not operand.is_cpu or operand.dim() != 1:
        raise TypeError(f"a support is a vector of uint8 on the CPU, got {operand.dtype} on {operand.device}")
    if operand.numel() != (size.numel() + 7) // 8:
        raise ValueError(f"a support of shape {tuple(size)} has {(size.numel() + 7) // 8} bytes, got {operand.numel()}")
    with _lock:
        version, find = _known.get(operand, (None, None))
        found = find() if find is not None and version == operand._version else None
        if found is None or found.shape != size:
            found = Support(unpack(operand.contiguous(), size))
            keep: Callable[[], Support] = _Kept(found)
            _known[operand] = (operand._version, keep)
    return found


class Owner(Protocol):
    """Who keeps a weight sparse."""

    name: str

    def outside(self) -> int: ...  # noqa: D102


def watch(weight: Tensor, owner: Owner) -> None:
    """Let operators refuse a weight as long as its owner finds elements outside its support."""
    _owners[weight] = weakref.ref(owner)


def refuse_outside(weight: Tensor) -> None:
    """An error for a weight that its support does not fit: compiled programs cannot turn to dense layers, as others do."""
    find = _owners.get(weight)
    owner: Owner | None = None if find is None else find()
    if owner is not None and (count := owner.outside()):
        raise StateError(
            f"{count} weights of {owner.name} lie outside its mask: load the handle's state with the weights, take masks from the zeros "
            "(handle.masks_from_zeros()), or call handle.densify()"
        )


class _Kept:
    def __init__(self, support: Support) -> None:
        self._support = support

    def __call__(self) -> Support:
        return self._support
