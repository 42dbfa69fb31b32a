"""What changed at each update: the exploration record."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from regrow import gaps
from regrow.errors import StateError
from regrow.marks import Marks, count_common, count_of, positions
from regrow.text import as_html, as_text
from regrow.topology.view import LayerView

_LARGEST_JOURNAL = 1 << 30
Set = Tensor | Marks


@dataclass(frozen=True)
class LayerRecord:
    """One layer at one topology update."""

    layer: str
    before: int
    removed: int
    grown: int
    regrown_at_once: int
    after: int
    density: float
    momentum_share: float | None
    distance_to_start: float
    distance_to_previous: float
    ever_active: float


@dataclass(frozen=True)
class Record:
    """One topology update; with a budget in compute the share of the dense compute it left, and the price that took."""

    update: int
    step: int
    prune_rate: float
    budget: int
    density: float
    layers: tuple[LayerRecord, ...]
    compute: float | None = None
    price: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers and lists, ready for JSON."""
        return asdict(self)

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Record:
        """The inverse of :meth:`as_dict`; TypeError, ValueError or KeyError where a row is something else."""
        layers = tuple(_typed(LayerRecord(**row)) for row in data["layers"])
        return _typed(Record(**{**data, "layers": layers}))


class Journal(list[Record]):
    """The records, and a table when printed or shown in a notebook."""

    def __rich__(self) -> Any:
        """One line per update and layer."""
        from rich.markup import escape
        from rich.table import Table

        table = Table(title=f"{len(self)} topology updates")
        for column in ("update", "step", "prune rate", "layer", "removed", "grown", "density"):
            table.add_column(column, justify="left" if column == "layer" else "right")
        for record in self:
            for row in record.layers:
                moment = str(record.update), f"{record.step:,}", f"{record.prune_rate:.3f}"
                table.add_row(*moment, escape(row.layer), f"{row.removed:,}", f"{row.grown:,}", f"{row.density:.2%}")
        return table

    def __str__(self) -> str:
        """The table as plain text."""
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self.__rich__())


_Row = TypeVar("_Row", LayerRecord, Record)


def _typed(row: _Row) -> _Row:
    """The same row, its numbers known to be finite numbers."""
    for item in fields(row):
        value = getattr(row, item.name)
        if item.type in ("int", "float") or (item.type == "float | None" and value is not None):
            wanted = int if item.type == "int" else (int, float)
            if not isinstance(value, wanted) or not math.isfinite(value):
                raise TypeError(f"{item.name} = {value!r}")
        elif item.type == "str" and not isinstance(value, str):
            raise TypeError(f"{item.name} = {value!r}")
    return row


def pack_records(records: Sequence[Record]) -> Tensor:
    """A journal as bytes: its JSON, compressed."""
    text = json.dumps([record.as_dict() for record in records])
    return torch.frombuffer(bytearray(zlib.compress(text.encode())), dtype=torch.uint8)


def unpack_records(packed: Tensor | Sequence[dict[str, Any]] | None) -> Journal:
    """The inverse of :func:`pack_records`; plain rows are taken too, and None where the journal is kept elsewhere."""
    try:
        rows = _inflated(packed) if isinstance(packed, Tensor) else [] if packed is None else packed
        if not isinstance(rows, list):
            raise TypeError("no list of rows")
        return Journal(Record.from_dict(row) for row in rows)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError, zlib.error) as error:
        raise StateError(f"the saved journal is damaged ({error}): take an older checkpoint") from error


def _inflated(packed: Tensor) -> list[dict[str, Any]]:
    inflate = zlib.decompressobj()
    content = inflate.decompress(packed.to(torch.uint8).numpy(force=True).tobytes(), _LARGEST_JOURNAL)
    if not inflate.eof:
        raise ValueError("cut off, or larger than any journal")
    return json.loads(content)


def pack(mask: Tensor) -> Tensor:
    """A bool tensor as bits in a uint8 vector: one eighth of a byte per weight."""
    return torch.from_numpy(np.packbits(mask.cpu().numpy().reshape(-1)))


def unpack(bits: Tensor, shape: torch.Size) -> Tensor:
    """The inverse of :func:`pack`."""
    flat = np.unpackbits(bits.cpu().numpy(), count=shape.numel())
    return torch.from_numpy(flat.astype(bool)).view(shape)


def coded(mask: Set, storage: str) -> Tensor:
    """A mask as bytes: its bits, or the gaps between its positions for layers in compact storage."""
    if storage != "compact":
        return pack(mask)  # type: ignore[arg-type]
    return gaps.encode(mask.positions if isinstance(mask, Marks) else positions(mask))


def decoded(code: Tensor, shape: torch.Size, storage: str) -> Set:
    """The inverse of :func:`coded`."""
    return unpack(code, shape) if storage != "compact" else Marks(shape, gaps.decode(code, shape.numel()))


def coded_count(code: Tensor, storage: str) -> int:
    """How many weights a coded mask has."""
    if storage == "compact":
        return gaps.count(code)
    return int(np.unpackbits(code.cpu().numpy()).sum(dtype=np.int64))


def distance(a: Tensor | Marks, b: Tensor | Marks) -> float:
    """Share of weights not common to two masks: |a xor b| / (|a| + |b|), from 0 (equal) to 1 (disjoint)."""
    total = count_of(a) + count_of(b)
    return (total - 2 * count_common(a, b)) / total if total else 0.0


def layer_record(
    view: LayerView, mask: Set, removed: Set, grown: Set, share: float | None, start: Set, ever_active: int
) -> LayerRecord:
    """What one update did to one layer; masks are tensors or :class:`Marks`, all of one kind. ``ever_active`` were present once."""
    after = count_of(mask)
    return LayerRecord(
        layer=view.name,
        before=view.nnz,
        removed=count_of(removed),
        grown=count_of(grown),
        regrown_at_once=count_common(removed, grown),
        after=after,
        density=after / view.numel,
        momentum_share=share,
        distance_to_start=distance(mask, start),
        distance_to_previous=distance(mask, view.before),
        ever_active=ever_active / view.numel,
    )
