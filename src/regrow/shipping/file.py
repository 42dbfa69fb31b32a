"""The file: one safetensors file, no pickle, only strided tensors; read completely and checked before anything is used.

Metadata (texts, as the format has it): `format` = regrow, `version` of the format, `regrow` version of the writer, `tensors` (JSON: layout
and shape of sparse ones, `same_as` of tied ones; the rest is dense), `architecture` and `about` (JSON), `sha256` over all of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as parse_tensors
from safetensors.torch import save as serialise_tensors
from torch import Tensor

from regrow import __version__
from regrow.errors import StateError, unknown
from regrow.files import write_atomically
from regrow.shipping.packing import LAYOUTS, VALUES, Packed, check, pack, unpack

FORMAT, VERSION = "regrow", "1"
_TEXTS = ("format", "version", "regrow", "tensors", "architecture", "about", "sha256")
_LONGEST_HEADER = 100 * 1024 * 1024


@dataclass(frozen=True)
class Stored:
    """What a file holds: packed tensors by name, tied names, the architecture (None: unknown) and facts about the training."""

    tensors: Mapping[str, Packed]
    tied: Mapping[str, str] = field(default_factory=dict)
    architecture: Mapping[str, Any] | None = None
    about: Mapping[str, Any] = field(default_factory=dict)

    def state_dict(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Full-shaped tensors, at least in single precision, and the masks, both by name."""
        state, masks = {}, {}
        for name, packed in self.tensors.items():
            full, mask = unpack(packed)
            state[name] = full
            if mask is not None:
                masks[name] = mask
        for name, other in self.tied.items():
            state[name] = state[other]
        return state, masks


def store(
    state: Mapping[str, Tensor],
    masks: Mapping[str, Tensor],
    architecture: Mapping[str, Any] | None = None,
    about: Mapping[str, Any] | None = None,
    values: str = "float32",
) -> Stored:
    """Pack a state dict; tied tensors once. Vectors (biases, norms) and whole numbers keep their type, matrices get ``values``."""
    if values not in VALUES:
        raise unknown("type of values", values, VALUES)
    if stray := sorted(set(masks) - set(state)):
        raise StateError(f"there is a mask for {stray[0]}, but no such tensor in the model")
    tensors: dict[str, Packed] = {}
    tied: dict[str, str] = {}
    first: dict[tuple[Any, ...], str] = {}
    for name, tensor in _masked_first(state, masks):
        place = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        if tensor.numel() and first.setdefault(place, name) != name:
            tied[name] = first[place]
            continue
        mask = masks.get(name)
        if mask is not None and mask.shape != tensor.shape:
            raise StateError(f"the mask of {name} has shape {tuple(mask.shape)}, its tensor {tuple(tensor.shape)}")
        tensors[name] = pack(tensor, mask, VALUES[values] if tensor.ndim > 1 else None)
    return Stored(tensors, tied, architecture, dict(about or {}))


def write(path: Path, stored: Stored) -> int:
    """Write the file, whole or not at all; returns its size in bytes."""
    sparse = {name: packed for name, packed in stored.tensors.items() if packed.layout != "dense"}
    index: dict[str, Any] = {name: {"layout": p.layout, "shape": list(p.shape)} for name, p in sparse.items()}
    index |= {name: {"same_as": other} for name, other in stored.tied.items()}
    flat = {_part(name, part): t for name, p in stored.tensors.items() for part, t in p.parts.items()}
    if len(flat) != sum(len(p.parts) for p in stored.tensors.values()):
        raise StateError("two tensors would get the same name in the file: a name ends like a part of another")
    metadata = {
        "format": FORMAT,
        "version": VERSION,
        "regrow": __version__,
        "tensors": json.dumps(index),
        "architecture": json.dumps(stored.architecture),
        "about": json.dumps(stored.about),
    }
    metadata["sha256"] = digest(metadata, flat)
    content = serialise_tensors(flat, metadata)
    write_atomically(path, content)
    return len(content)


def read(path: Path) -> Stored:
    """Read and check a file.

    Raises:
        StateError: for anything but a whole, consistent file; nothing of it was used.
    """
    content = Path(path).read_bytes()
    try:
        return _parse(content)
    except StateError as error:
        raise StateError(f"{path} is refused: {error}") from error
    except (ValueError, TypeError, KeyError, AttributeError, SafetensorError, RecursionError, RuntimeError) as error:
        raise StateError(f"{path} is refused: it is not a file that regrow wrote ({error})") from error


def digest(metadata: Mapping[str, str], tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 over metadata (without itself) and tensors, in the order of their names."""
    found = hashlib.sha256()
    found.update(json.dumps({k: v for k, v in metadata.items() if k != "sha256"}, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        found.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        found.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def _parse(content: bytes) -> Stored:
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > min(_LONGEST_HEADER, len(content) - 8):
        raise StateError("it is cut off, or not a safetensors file")
    header = json.loads(content[8 : 8 + length], object_pairs_hook=_without_twins)
    metadata = header.get("__metadata__")
    if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
        raise StateError("it is not a file that regrow wrote: its metadata lacks format = regrow")
    if metadata.get("version") != VERSION:
        raise StateError(f"its format has version {metadata.get('version')}, this regrow reads {VERSION}")
    if sorted(metadata) != sorted(_TEXTS) or not all(isinstance(text, str) for text in metadata.values()):
        raise StateError(f"its metadata must be the texts {', '.join(_TEXTS)}")
    flat = parse_tensors(content)
    if digest(metadata, flat) != metadata["sha256"]:
        raise StateError("it is damaged or was changed (its SHA-256 is not the recorded one)")
    return _assemble(metadata, flat)


def _assemble(metadata: Mapping[str, str], flat: Mapping[str, Tensor]) -> Stored:
    index, architecture, about = (
        json.loads(metadata[key], object_pairs_hook=_without_twins) for key in ("tensors", "architecture", "about")
    )
    if not isinstance(index, dict) or not isinstance(about, dict) or not isinstance(architecture, dict | None):
        raise StateError("its metadata is not what the format says")
    tensors = {name: _packed(name, entry, flat) for name, entry in index.items() if "same_as" not in entry}
    tied = {name: entry["same_as"] for name, entry in index.items() if "same_as" in entry}
    parts = {_part(name, part) for name, packed in tensors.items() for part in packed.parts}
    tensors |= {name: Packed("dense", tuple(t.shape), {"": t}) for name, t in flat.items() if name not in parts}
    if twins := [name for name in index if name in flat]:
        raise StateError(f"tensor {twins[0]} is stored twice")
    if lost := [name for name, other in tied.items() if other not in tensors]:
        raise StateError(f"tensor {lost[0]} is said to be the same as one that is missing")
    for name, packed in tensors.items():
        check(name, packed)
    return Stored(tensors, tied, architecture, about)


def _packed(name: str, entry: Any, flat: Mapping[str, Tensor]) -> Packed:
    layout, shape = entry["layout"], entry["shape"]
    if not LAYOUTS.get(layout) or not all(type(size) is int for size in shape):
        raise StateError(f"tensor {name} has no known sparse layout and shape")
    if missing := [part for part in LAYOUTS[layout] if _part(name, part) not in flat]:
        raise StateError(f"tensor {_part(name, missing[0])} is missing")
    return Packed(layout, tuple(shape), {part: flat[_part(name, part)] for part in LAYOUTS[layout]})


def _part(name: str, part: str) -> str:
    return f"{name}.{part}" if part else name


def _masked_first(state: Mapping[str, Tensor], masks: Mapping[str, Tensor]) -> list[tuple[str, Tensor]]:
    """Of tied tensors the one with a mask is stored; otherwise the order of the state."""
    return sorted(((name, t.detach()) for name, t in state.items()), key=lambda item: item[0] not in masks)


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise StateError("a name occurs twice in its header")
    return found
