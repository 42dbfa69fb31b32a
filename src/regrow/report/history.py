"""The journal of topology updates as arrays [moment, layer]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regrow.topology.journal import LayerRecord, Record

Array = np.ndarray


@dataclass(frozen=True)
class History:
    """Moments are the start and each journaled update; changes have one row per update.

    ``sizes`` [layer]; ``steps`` [1 + updates]; ``counts`` [1 + updates, layer]; all others [updates, layer].
    """

    layers: tuple[str, ...]
    sizes: Array
    steps: Array
    counts: Array
    before: Array
    removed: Array
    grown: Array
    regrown: Array
    to_start: Array
    to_previous: Array
    ever_active: Array

    @property
    def densities(self) -> Array:
        """Density of each layer at each moment."""
        return self.counts / self.sizes

    @property
    def net(self) -> Array:
        """Weights that each layer gained since the moment before; exact also where not every update is journaled."""
        return np.diff(self.counts, axis=0)

    def totals(self) -> dict[str, Array]:
        """The same measures for all layers taken as one mask, per update."""
        now = self.counts[1:]
        pairs = now + self.before
        from_start = now + self.counts[0]
        removed = self.removed.sum(1)
        return {
            "to_start": _ratio((self.to_start * from_start).sum(1), from_start.sum(1)),
            "to_previous": _ratio((self.to_previous * pairs).sum(1), pairs.sum(1)),
            "ever_active": (self.ever_active * self.sizes).sum(1) / self.sizes.sum(),
            "regrown": _ratio(self.regrown.sum(1), removed),
        }


def history(journal: Sequence[Record]) -> History | None:
    """Arrays of a journal; None for an empty one.

    A layer that an update left out (it was frozen) keeps its count there.
    """
    if not journal:
        return None
    names = tuple(dict.fromkeys(row.layer for record in journal for row in record.layers))
    tables = [{row.layer: row for row in record.layers} for record in journal]
    first = [next(table[name] for table in tables if name in table) for name in names]
    counts = [[row.before for row in first]]
    for table in tables:
        counts.append([table[n].after if n in table else count for n, count in zip(names, counts[-1], strict=True)])
    return History(
        layers=names,
        sizes=np.array([round(row.after / row.density) for row in first]),
        steps=np.array([0, *(record.step for record in journal)]),
        counts=np.array(counts),
        before=np.array(
            [
                [t[n].before if n in t else c for n, c in zip(names, row, strict=True)]
                for t, row in zip(tables, counts, strict=False)
            ]
        ),
        removed=_column(tables, names, "removed"),
        grown=_column(tables, names, "grown"),
        regrown=_column(tables, names, "regrown_at_once"),
        to_start=_column(tables, names, "distance_to_start"),
        to_previous=_column(tables, names, "distance_to_previous"),
        ever_active=_column(tables, names, "ever_active"),
    )


def _column(tables: Sequence[dict[str, LayerRecord]], names: Sequence[str], field: str) -> Array:
    last = dict.fromkeys(names, 0.0)
    rows = []
    for table in tables:
        for name in names:
            if name in table:
                last[name] = getattr(table[name], field)
            elif field in ("removed", "grown", "regrown_at_once", "distance_to_previous"):
                last[name] = 0.0
        rows.append([last[name] for name in names])
    return np.array(rows)


def _ratio(part: Array, whole: Array) -> Array:
    return np.divide(part, whole, out=np.zeros(len(whole)), where=whole > 0)
