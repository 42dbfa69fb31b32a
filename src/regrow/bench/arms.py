"""The arms of a training benchmark: the same model dense in several settings, masked, on sparse kernels, and as `auto` decides."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regrow import models
from regrow.api import sparsify
from regrow.arguments import STORAGES
from regrow.bench import masks as masking
from regrow.bench.masks import Chosen, Masks
from regrow.errors import unknown
from regrow.handle import Handle

# Long enough that neither a topology update nor a growth window falls into a measurement.
_INTERVAL, _STEPS = 10**6, 10**7
_BATCHES = {"resnet50": 16, "lenet300": 100, "gpt-10m": 8, "gpt2-small": 4}
# A short run that moves weights between layers.
_SHORT_UPDATES, _SHORT_INTERVAL, _FEW = 2, 4, 16


@dataclass
class Arm:
    """A model with its batch."""

    model: Any
    x: Tensor
    y: Tensor
    optimizer: torch.optim.Optimizer

    def passes(self) -> None:
        """Forward and backward, without the optimizer."""
        for parameter in self.model.parameters():
            parameter.grad = None
        nn.functional.cross_entropy(self.model(self.x).flatten(0, -2), self.y.flatten()).backward()

    def step(self) -> None:
        """A whole training step."""
        self.passes()
        self.optimizer.step()


@dataclass
class SparseArm(Arm):
    """An arm whose weights a handle keeps sparse."""

    handle: Handle

    def in_window(self, work: Callable[[], None]) -> Callable[[], None]:
        """The same work as in a step of an open growth window: dense weight gradients, collected for growth."""

        def opened() -> None:
            self._window(True)
            work()
            self._window(False)

        return opened

    def _window(self, is_open: bool) -> None:
        for sparse in self.handle.parameters:
            sparse.collecting = is_open
        self.handle.switch.follow(is_open)


def dense(model: nn.Module, x: Tensor, y: Tensor, channels_last: bool = False) -> Arm:
    """The model as it is, in one of torch's memory formats."""
    if channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        x = x.contiguous(memory_format=torch.channels_last)
    return Arm(model, x, y, _optimizer(model))


def _optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """What such models are trained with."""
    if masking.embeds(model):
        return torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    return torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, nesterov=True, weight_decay=5e-4, fused=True)


def sparse(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    masks: Masks,
    execution: str,
    native_step: bool = True,
    storage: str = "dense",
) -> SparseArm:
    """The model under sparse momentum with these masks, in ``masked`` (channels_last) or ``sparse`` execution.

    With ``native_step`` the optimizer touches present weights only.
    """
    if storage != "dense":
        return stored(model, x, y, masks, execution, native_step, storage)
    arm = masked(model, x, y, masks, channels_last=execution == "masked" and x.dim() == 4)
    arm.handle.execute(execution, native_step)
    return arm


def stored(
    model: nn.Module, x: Tensor, y: Tensor, masks: Masks, execution: str, native_step: bool, storage: str
) -> SparseArm:
    """The same, stored so from the start: masks are those of zeros."""
    if storage not in STORAGES:
        raise unknown("storage", storage, STORAGES)
    with torch.no_grad():
        for name, mask in masks.items():
            model.get_parameter(f"{name}.weight").mul_(mask)
    arm = dense(model, x, y)
    spared = [name for name, _ in masking.layers_of(model) if name not in masks]
    how: dict[str, Any] = {"execution": execution, "native_step": native_step}
    how |= {} if storage == STORAGES[0] else {"storage": storage}
    rest: dict[str, Any] = {"start": "zeros", "scope": spared, "steps": _STEPS, "update_every": _INTERVAL}
    handle = sparsify(model, arm.optimizer, **how, **rest, process_group=False)
    return SparseArm(arm.model, arm.x, arm.y, arm.optimizer, handle)


def auto(model: nn.Module, x: Tensor, y: Tensor, masks: Masks, channels_last: bool) -> SparseArm:
    """The same under ``auto`` in one of torch's memory formats, after the step in which it decides."""
    arm = masked(model, x, y, masks, channels_last)
    arm.handle.execute("auto")
    arm.step()
    return arm


def masked(
    model: nn.Module, x: Tensor, y: Tensor, masks: Masks, channels_last: bool, interval: int = _INTERVAL
) -> SparseArm:
    """The model under sparse momentum with these masks, in one of torch's memory formats."""
    arm = dense(model, x, y, channels_last)
    weights = {name: model.get_parameter(f"{name}.weight").detach().clone() for name in masks}
    spared = [name for name, _ in masking.layers_of(model) if name not in masks]
    share = sum(int(m.count_nonzero()) for m in masks.values()) / sum(m.numel() for m in masks.values())
    handle = sparsify(
        model,
        arm.optimizer,
        density=share,
        scope=spared,
        steps=_STEPS,
        update_every=interval,
        process_group=False,
    )
    with torch.no_grad():
        for name, weight in weights.items():
            model.get_parameter(f"{name}.weight").copy_(weight * masks[name])
    handle.masks_from_zeros()
    return SparseArm(arm.model, arm.x, arm.y, arm.optimizer, handle)


def after_updates(model: nn.Module, x: Tensor, y: Tensor, chosen: Chosen) -> Chosen:
    """The masks that a short run from these ones has after its topology updates: layers differ in density."""
    arm = masked(copy.deepcopy(model), x[:_FEW], y[:_FEW], chosen.masks, False, _SHORT_INTERVAL)
    for _ in range(_SHORT_UPDATES * _SHORT_INTERVAL):
        arm.step()
    moved = {name: arm.handle.masks[name].clone() for name in chosen.masks}
    return Chosen(moved, f"after {arm.handle.updates} updates", chosen.density)


def usual_batch(name: str) -> int:
    """How many samples a model is measured with unless told otherwise."""
    return _BATCHES.get(name, 128)


def batch_of(name: str, size: int | None = None) -> tuple[Tensor, Tensor]:
    """A random batch with random labels for a model of the registry."""
    info, size = models.info(name), size or usual_batch(name)
    generator = torch.Generator().manual_seed(0)
    if info.tokens:
        text = torch.randint(info.num_classes, (size, info.input_shape[0] + 1), generator=generator)
        return text[:, :-1], text[:, 1:].contiguous()
    x = torch.randn(size, *info.input_shape, generator=generator)
    return x, torch.randint(info.num_classes, (size,), generator=generator)


def single_arm(wanted: dict[str, Any]) -> Arm:
    """One arm, by plain description: for a process of its own that measures memory."""
    model = models.create(wanted["model"], seed=0)
    x, y = batch_of(wanted["model"], wanted["batch"])
    name = wanted["name"]
    if name.startswith("dense"):
        return dense(model, x, y, channels_last=name != "dense NCHW" and x.dim() == 4)
    path = wanted.get("masks")
    chosen = masking.of_run(Path(path), model) if path else masking.spread(model, wanted["density"])
    return sparse(model, x, y, chosen.masks, name, storage=wanted.get("storage", "dense"))
