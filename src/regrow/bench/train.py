"""Whole training steps: dense in its fastest setting against masked and sparse, interleaved in one run."""

from __future__ import annotations

import copy
import gc
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regrow.bench import arms, blocks, masks
from regrow.bench.arms import Arm, SparseArm
from regrow.bench.compiled import compiled
from regrow.bench.masks import Chosen
from regrow.bench.timing import medians, quartiles, samples
from regrow.models.cost import cost

_STEP, _OPEN, _NATIVE, _AUTO = " + optimizer", ", window open", "sparse, native optimizer", "auto"
_OTHER = "sparse, native optimizer, dense storage"
_ROUNDS_FOR_FORMAT = 3


@dataclass(frozen=True)
class TrainResult:
    """One row: milliseconds of a step. ``*_step_ms`` are with the optimizer, ``native_step_ms`` with one for present weights only.

    ``auto_*`` is ``execution="auto"`` after it decided to run ``auto_sparse`` layers on sparse kernels, with the native optimizer step.
    ``bound`` is dense over kept MACs, ``window_*`` a step with dense weight gradients, ``epoch_*`` the average over an update interval.
    Values that were not asked for are None. ``storage`` is that of the sparse arms; where it is compact, ``other_storage_step_ms`` is the
    native step in dense storage, in the same run, and ``storage_ratio`` how many times as long the compact one takes.
    Of a GPT ``blocks_*`` are forward and backward of its blocks alone; of the whole dense pass ``attention_share`` is attention between
    layers, ``head_share`` head, embeddings and loss.
    """

    model: str
    density: float
    masks: str
    batch: int
    dense_ms: float
    dense_setting: str
    dense_settings_ms: dict[str, float]
    compile_skipped: str
    masked_ms: float
    sparse_ms: float
    ratio: float
    dense_step_ms: float
    masked_step_ms: float
    sparse_step_ms: float
    native_step_ms: float
    step_ratio: float
    useful_gflops: float
    bound: float
    bound_share: float
    auto_ms: float | None = None
    auto_ratio: float | None = None
    auto_step_ms: float | None = None
    auto_step_ratio: float | None = None
    auto_sparse: int | None = None
    window_ms: float | None = None
    epoch_ms: float | None = None
    epoch_ratio: float | None = None
    epoch_steps: str | None = None
    spread: dict[str, tuple[float, float]] | None = None
    dense_mb: float | None = None
    masked_mb: float | None = None
    sparse_mb: float | None = None
    storage: str = "dense"
    other_storage_step_ms: float | None = None
    storage_ratio: float | None = None
    blocks_dense_ms: float | None = None
    blocks_ms: float | None = None
    blocks_ratio: float | None = None
    attention_share: float | None = None
    head_share: float | None = None

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


@dataclass(frozen=True)
class WindowSteps:
    """``steps`` of ``of`` steps have an open growth window."""

    steps: int
    of: int

    def average(self, closed: float, opened: float) -> float:
        """Mean time of a step over an update interval."""
        return (opened * self.steps + closed * (self.of - self.steps)) / self.of


def build_arms(
    base: nn.Module,
    x: Tensor,
    y: Tensor,
    chosen: Chosen,
    compile: bool,
    auto: bool = False,
    storage: str = "dense",
) -> tuple[dict[str, Arm], dict[str, SparseArm], str]:
    """Dense and sparse arms, each with a copy of the model; the reason why the compiled one is missing, if it is."""

    def fresh() -> nn.Module:
        return copy.deepcopy(base)

    dense = {"dense NCHW": arms.dense(fresh(), x, y)}
    if x.dim() == 4:
        dense["dense channels_last"] = arms.dense(fresh(), x, y, channels_last=True)
    reason = "not asked for"
    if compile:
        plain = arms.dense(fresh(), x, y, channels_last=x.dim() == 4)
        plain.model, reason = compiled(plain.model, lambda model: model(plain.x).sum().backward())
        if plain.model is not None:
            dense["dense compiled"] = plain
    sparse = {
        "masked": arms.sparse(fresh(), x, y, chosen.masks, "masked", native_step=False),
        "sparse": arms.sparse(fresh(), x, y, chosen.masks, "sparse", native_step=False, storage=storage),
        _NATIVE: arms.sparse(fresh(), x, y, chosen.masks, "sparse", storage=storage),
    }
    if storage != "dense":
        sparse[_OTHER] = arms.sparse(fresh(), x, y, chosen.masks, "sparse")
    if auto:
        sparse[_AUTO] = arms.auto(fresh(), x, y, chosen.masks, channels_last=_prefers_channels_last(dense))
    return dense, sparse, reason


def _prefers_channels_last(dense: dict[str, Arm]) -> bool:
    """The memory format in which the dense model is faster: what a user would choose before leaving the rest to `auto`."""
    formats = {name: arm.passes for name, arm in dense.items() if name != "dense compiled"}
    seconds = medians(formats, _ROUNDS_FOR_FORMAT)
    return min(seconds, key=seconds.__getitem__) == "dense channels_last"


def _candidates(dense: dict[str, Arm], sparse: dict[str, SparseArm], windows: bool) -> dict[str, Callable[[], None]]:
    candidates: dict[str, Callable[[], None]] = {}
    for name, arm in {**dense, **sparse}.items():
        if name not in (_NATIVE, _OTHER):
            candidates[name] = arm.passes
        candidates[name + _STEP] = arm.step
    if windows:
        candidates["sparse" + _OPEN] = sparse[_NATIVE].in_window(sparse[_NATIVE].step)
    return candidates | blocks.candidates(dense["dense NCHW"], sparse["sparse"])


def measure(
    name: str,
    base: nn.Module,
    batch: tuple[Tensor, Tensor],
    chosen: Chosen,
    repeats: int = 5,
    *,
    window: WindowSteps | None = None,
    compile: bool = True,
    auto: bool = False,
    storage: str = "dense",
) -> TrainResult:
    """One row for a model, a batch with labels, and masks."""
    gc.collect()  # arms of the row before are cycles, and may be gigabytes
    torch.manual_seed(0)
    dense_arms, sparse_arms, reason = build_arms(base, *batch, chosen, compile, auto, storage)
    taken = samples(_candidates(dense_arms, sparse_arms, window is not None), repeats)
    milliseconds = {key: 1e3 * statistics.median(values) for key, values in taken.items()}
    dense = {key: milliseconds[key] for key in dense_arms}
    best = min(dense, key=dense.__getitem__)
    dense_step = min(milliseconds[key + _STEP] for key in dense)
    native = milliseconds[_NATIVE + _STEP]
    sparse_step = milliseconds["sparse" + _STEP]
    table = cost(base, sample=batch[0][:1]) if masks.embeds(base) else cost(base, tuple(batch[0].shape[1:]))
    ratio, bound = dense[best] / milliseconds["sparse"], masks.bound(table, chosen.masks)
    operations = masks.useful_flops(table, chosen.masks) * len(batch[0])
    return TrainResult(
        model=name,
        density=chosen.density,
        masks=chosen.source,
        batch=len(batch[0]),
        storage=storage,
        dense_ms=dense[best],
        dense_setting=best,
        dense_settings_ms=dense,
        compile_skipped=reason,
        masked_ms=milliseconds["masked"],
        sparse_ms=milliseconds["sparse"],
        ratio=ratio,
        dense_step_ms=dense_step,
        masked_step_ms=milliseconds["masked" + _STEP],
        sparse_step_ms=sparse_step,
        native_step_ms=native,
        step_ratio=dense_step / min(sparse_step, native),
        useful_gflops=operations / (1e6 * milliseconds["sparse"]),
        bound=bound,
        bound_share=ratio / bound,
        spread={key: quartiles([1e3 * value for value in values]) for key, values in taken.items()},
        **blocks.shares(milliseconds, dense["dense NCHW"]),
        **_other(native, milliseconds[_OTHER + _STEP]) if _OTHER in sparse_arms else {},
        **_automatic(sparse_arms[_AUTO], dense[best], dense_step, milliseconds) if auto else {},
        **_epoch(window, dense_step, min(sparse_step, native), milliseconds) if window is not None else {},
    )


def _other(compact: float, dense: float) -> dict[str, Any]:
    return {"other_storage_step_ms": dense, "storage_ratio": compact / dense}


def _automatic(arm: SparseArm, dense: float, dense_step: float, milliseconds: dict[str, float]) -> dict[str, Any]:
    return {
        "auto_ms": milliseconds[_AUTO],
        "auto_ratio": dense / milliseconds[_AUTO],
        "auto_step_ms": milliseconds[_AUTO + _STEP],
        "auto_step_ratio": dense_step / milliseconds[_AUTO + _STEP],
        "auto_sparse": sum(row.execution == "sparse" for row in arm.handle.explain()),
    }


def _epoch(window: WindowSteps, dense: float, closed: float, milliseconds: dict[str, float]) -> dict[str, Any]:
    """The average over an update interval, optimizer included on both sides."""
    opened = milliseconds["sparse" + _OPEN]
    mean = window.average(closed, opened)
    return {
        "window_ms": opened,
        "epoch_ms": mean,
        "epoch_ratio": dense / mean,
        "epoch_steps": f"{window.steps}/{window.of}",
    }
