"""Is `auto` right? Its choice, measured whole, against everything dense, everything sparse, and every mix that differs in one chain.

A *chain* is a run of layers, in order of execution, that compute the same way. A mix has one chain turned, or longer or shorter by a layer.
"""

from __future__ import annotations

import contextlib
import copy
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from torch import Tensor, nn

from regrow.bench import arms
from regrow.bench.arms import SparseArm
from regrow.bench.masks import Chosen
from regrow.bench.timing import medians, quartiles
from regrow.execution.choosing.auto import Verdict

DENSE, SPARSE, AUTO, AGAIN = "everything dense", "everything sparse", "auto", "auto, decided again"
_STEPS = 2  # timed in a row after an assignment changed

Assignment = frozenset[str]


@dataclass(frozen=True)
class ChoiceResult:
    """One row: milliseconds of whole training steps, optimizer included.

    ``share_of_best`` is the fastest assignment over `auto`, ``share_of_dense`` the fastest plain dense model over it: 1 is as fast.
    ``deciding_steps`` is what deciding took, in steps of the dense model. ``differs`` lists the layers that a second decision, without the
    first one's timings, computes another way.
    """

    model: str
    density: float
    masks: str
    batch: int
    layers: int
    auto_sparse: tuple[str, ...]
    auto_ms: float
    best: str
    best_ms: float
    share_of_best: float
    dense_ms: float
    dense_setting: str
    share_of_dense: float
    deciding_steps: float
    differs: tuple[str, ...]
    again_ms: float
    milliseconds: dict[str, float]
    quartiles: dict[str, tuple[float, float]]

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def mixes(order: Sequence[str], sparse: Assignment) -> dict[str, Assignment]:
    """What differs from an assignment in one chain, by what is different.

    Example:
        >>> {name: sorted(mix) for name, mix in mixes(["a", "b", "c"], frozenset("ab")).items()}
        {'a-b dense': [], 'a dense': ['b'], 'b dense': ['a'], 'c sparse': ['a', 'b', 'c']}
    """
    found: dict[str, Assignment] = {}
    for is_sparse, run in groupby(order, key=sparse.__contains__):
        chain, way = list(run), "dense" if is_sparse else "sparse"
        title = chain[0] if len(chain) == 1 else f"{chain[0]}-{chain[-1]}"
        found[f"{title} {way}"] = sparse ^ frozenset(chain)
        for end in (chain[0], chain[-1]):
            found[f"{end} {way}"] = sparse ^ {end}
    return found


def assignments(order: Sequence[str], choice: Assignment, again: Assignment) -> dict[str, Assignment]:
    """Everything to measure, each assignment once; the first name counts."""
    wanted = {AUTO: choice, DENSE: frozenset[str](), SPARSE: frozenset(order), AGAIN: again, **mixes(order, choice)}
    names = {assignment: name for name, assignment in reversed(wanted.items())}
    return {name: assignment for assignment, name in reversed(names.items())}


def measure(name: str, base: nn.Module, batch: tuple[Tensor, Tensor], chosen: Chosen, repeats: int = 5) -> ChoiceResult:
    """One row for a model, a batch with labels, and masks."""
    dense = {"NCHW": arms.dense(copy.deepcopy(base), *batch)}
    if batch[0].dim() == 4:
        dense["channels_last"] = arms.dense(copy.deepcopy(base), *batch, channels_last=True)
    dense_ms = {setting: 1e3 * seconds for setting, seconds in medians(_steps(dense), repeats).items()}
    fastest = min(dense_ms, key=dense_ms.__getitem__)
    dense.clear()
    with _own_timings():
        arm = arms.auto(copy.deepcopy(base), *batch, chosen.masks, channels_last=fastest == "channels_last")
    first = _verdict(arm)
    with _own_timings():
        arm.handle.execute("auto")
        arm.step()
    second = _verdict(arm)
    order = _order(arm, first)
    taken = _taken(arm, assignments(order, first.sparse, second.sparse), repeats)
    ms = {each: statistics.median(values) for each, values in taken.items()}
    best = min(ms, key=ms.__getitem__)
    again = next(each for each, mix in assignments(order, first.sparse, second.sparse).items() if mix == second.sparse)
    return ChoiceResult(
        model=name,
        density=chosen.density,
        masks=chosen.source,
        batch=len(batch[0]),
        layers=len(order),
        auto_sparse=tuple(each for each in order if each in first.sparse),
        auto_ms=ms[AUTO],
        best=best,
        best_ms=ms[best],
        share_of_best=ms[best] / ms[AUTO],
        dense_ms=dense_ms[fastest],
        dense_setting=fastest,
        share_of_dense=dense_ms[fastest] / ms[AUTO],
        deciding_steps=1e3 * max(first.seconds, second.seconds) / dense_ms[fastest],
        differs=tuple(each for each in order if each in first.sparse ^ second.sparse),
        again_ms=ms[again],
        milliseconds=ms,
        quartiles={each: quartiles(values) for each, values in taken.items()},
    )


def line(row: Mapping[str, Any]) -> str:
    """One row as text."""
    again = f"again: {len(row['differs'])} other, {row['again_ms']:.1f} ms" if row["differs"] else "again: the same"
    return (
        f"{row['model']} ({row['masks']})  {row['density']:.3g}  auto {row['auto_ms']:.1f} ms with {len(row['auto_sparse'])} of "
        f"{row['layers']} layers sparse, {row['share_of_best']:.2f} of the best ({row['best']}, {row['best_ms']:.1f} ms), "
        f"{row['share_of_dense']:.2f}x dense {row['dense_setting']}; decided in {row['deciding_steps']:.1f} steps, {again}"
    )


def _steps(found: Mapping[str, arms.Arm]) -> dict[str, Any]:
    return {name: arm.step for name, arm in found.items()}


def _verdict(arm: SparseArm) -> Verdict:
    auto = arm.handle.switch.auto
    if auto is None or auto.verdict is None:
        raise RuntimeError("auto has not decided")
    return auto.verdict


def _order(arm: SparseArm, verdict: Verdict) -> list[str]:
    """The layers in order of execution, as far as it was recorded."""
    recorded = [times.name for times in verdict.times if times.kind == "layer"]
    return recorded or [layer.name for layer in arm.handle.network.layers]


def _taken(arm: SparseArm, wanted: Mapping[str, Assignment], repeats: int) -> dict[str, list[float]]:
    """Milliseconds of every timed step of each assignment, in turns; lists are built and caches filled by a step before."""
    taken: dict[str, list[float]] = {name: [] for name in wanted}
    for _ in range(repeats):
        for name, sparse in wanted.items():
            _assign(arm, sparse)
            arm.step()
            for _ in range(_STEPS):
                begin = time.perf_counter()
                arm.step()
                taken[name].append(1e3 * (time.perf_counter() - begin))
    return taken


def _assign(arm: SparseArm, sparse: Assignment) -> None:
    verdict = Verdict(sparse, sparse, (), "measured as a mix", 0.0)
    arm.handle.switch.restore({"execution": "auto", "pending": False, "decision": verdict.as_dict()})
    arm.handle.switch.follow(False)


@contextlib.contextmanager
def _own_timings() -> Iterator[None]:
    """Without timings that were measured before: every decision for itself."""
    before = os.environ.get("REGROW_CACHE")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["REGROW_CACHE"] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ["REGROW_CACHE"]
            else:
                os.environ["REGROW_CACHE"] = before
