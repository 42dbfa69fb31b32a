"""FLOPs of a run: its real masks over time and its real growth windows, by RigL's accounting; and the paper's estimate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from regrow.analysis.flops import dense_gradient_step, dense_step, static_step
from regrow.handle import Handle
from regrow.report.history import History
from regrow.report.snapshot import LayerRow, Snapshot


@dataclass(frozen=True)
class TrainingWork:
    """FLOPs per sample, means over the steps done so far.

    ``dense_forward`` and ``forward`` are f_D and the mean f_S; ``step`` the mean training FLOPs of one step; ``window_steps`` how many of
    the ``steps`` had dense weight gradients.
    """

    steps: int
    window_steps: int
    dense_forward: float
    forward: float
    step: float

    @property
    def fraction(self) -> float:
        """Training FLOPs over those of a dense network."""
        return self.step / dense_step(self.dense_forward)

    @property
    def window_share(self) -> float:
        """Share of steps inside growth windows."""
        return self.window_steps / self.steps if self.steps else 0.0


def training_work(shot: Snapshot, past: History | None, steps: int) -> TrainingWork | None:
    """Sum over steps of 3 f_S, plus f_D - f_S where the weight gradient is dense; None without layers or steps."""
    if not shot.rows or not steps:
        return None
    moments, forwards = _forwards(shot, past)
    lengths = np.diff(np.clip([*moments, steps], 0, steps))
    dense = 2.0 * sum(row.macs or 0 for row in shot.rows)
    backward = _reached_forward(shot)
    inside = _count_windows(shot.handle, [*moments, steps], steps)
    total = 0.0
    for length, count, forward in zip(lengths, inside, forwards, strict=True):
        if backward is not None:
            total += length * (2 * forward + max(forward, backward))
        else:
            total += (length - count) * static_step(forward) + count * dense_gradient_step(forward, dense)
    mean = float((lengths * forwards).sum() / steps)
    return TrainingWork(steps, steps if backward == dense else int(sum(inside)), dense, mean, float(total / steps))


def _forwards(shot: Snapshot, past: History | None) -> tuple[list[int], np.ndarray]:
    """f_S after each journaled update; layers outside the journal as they are now."""
    if past is None:
        return [0], np.array([2.0 * sum(row.kept_macs or 0 for row in shot.rows)])
    rows = {row.name: row for row in shot.rows}
    per_weight = np.array([_macs_per_weight(rows.get(name)) for name in past.layers])
    rest = sum(row.kept_macs or 0 for name, row in rows.items() if name not in past.layers)
    return [int(s) for s in past.steps], 2.0 * (past.counts @ per_weight + rest)


def _macs_per_weight(row: LayerRow | None) -> float:
    return 0.0 if row is None or row.macs is None else row.macs / row.numel


def _reached_forward(shot: Snapshot) -> float | None:
    """FLOPs of a product over all weights that receive gradients, for methods that train weights beyond the mask."""
    if not shot.reach:
        return None
    return 2.0 * sum(
        (row.macs or 0) * shot.reach.get(row.name, 1.0 if not row.sparse else row.density) for row in shot.rows
    )


def _count_windows(handle: Handle, borders: list[int], steps: int) -> list[int]:
    """How many steps of each stretch between borders lie in a growth window."""
    ranges = np.array(list(window_ranges(handle, steps)), dtype=int).reshape(-1, 2)
    if not len(ranges):
        return [0] * (len(borders) - 1)
    first, lengths = ranges[:, 0], ranges[:, 1] - ranges[:, 0]
    done = np.concatenate([[0], np.cumsum(lengths)])
    at = np.searchsorted(first, borders, side="right") - 1
    inside = np.minimum(np.asarray(borders) - first[at], lengths[at])
    before = np.where(at >= 0, done[at] + inside, 0)
    return [int(count) for count in np.diff(before)]


def window_ranges(handle: Handle, steps: int) -> Iterator[tuple[int, int]]:
    """Half-open ranges of steps, numbered from 0, whose backward pass delivers gradients of missing weights."""
    clock = handle.settings.clock
    if clock is None or not handle.method.needs:
        return
    # An update after d finished steps uses steps d - K .. d - 1; one in place of step d uses that step too.
    shift = 1 if clock.when.phase == "instead" else 0
    previous, due = 0, clock.next_due(0)
    while due is not None and previous < steps:
        last = due + shift
        first = max(previous, last - handle.window.length(due))
        stride = handle.window.stride
        if stride == 1 and first < steps:
            yield first, min(last, steps)
        for place in range(last - 1 - (last - 1 - first) // stride * stride, last, stride) if stride > 1 else ():
            if place < steps:
                yield place, place + 1
        previous, due = last, clock.next_due(due + 1)


@dataclass(frozen=True)
class Estimate:
    """MACs of one group of layers in a forward pass: all, with present weights, with non-zero inputs, with both."""

    group: str
    layers: int
    dense: float
    weights: float
    activations: float
    both: float


def estimates(rows: list[LayerRow]) -> list[Estimate]:
    """Weights x activations per group of layers, in the order conv, shortcut, linear; groups without layers are left out."""
    found = []
    for group in ("conv", "shortcut", "linear"):
        mine = [
            (row.macs, row.density, row.input_density)
            for row in rows
            if row.group == group and row.macs and row.input_density is not None
        ]
        if mine:
            found.append(
                Estimate(
                    group=group,
                    layers=len(mine),
                    dense=sum(macs for macs, _, _ in mine),
                    weights=sum(macs * density for macs, density, _ in mine),
                    activations=sum(macs * active for macs, _, active in mine),
                    both=sum(macs * density * active for macs, density, active in mine),
                )
            )
    return found
