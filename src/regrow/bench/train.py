"""Whole training steps: a dense model in its fastest memory format against the same model on sparse kernels."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn

from regrow.bench.timing import medians
from regrow.execution import attach, travel, unsupported


@dataclass(frozen=True)
class TrainResult:
    """One row: milliseconds of a step, without and with the optimizer."""

    model: str
    density: float
    dense_ms: float
    dense_setting: str
    sparse_ms: float
    ratio: float
    dense_step_ms: float
    sparse_step_ms: float
    step_ratio: float

    def record(self) -> dict[str, object]:
        """As plain data."""
        return asdict(self)


def sparsified(model: nn.Module, density: float, keep_first: bool = True) -> nn.Module:
    """A copy of `model` on sparse kernels with uniform random masks; the first layer stays dense if `keep_first`."""
    model = copy.deepcopy(model)
    layers = [module for module in model.modules() if unsupported(module) is None]
    generator = torch.Generator().manual_seed(0)
    for layer in layers[1 if keep_first else 0 :]:
        mask = torch.rand(layer.weight.shape, generator=generator) < density
        with torch.no_grad():
            layer.weight.mul_(mask)
        attach(layer, mask)
    travel(model)
    return model


def _step(model: nn.Module, x: Tensor, y: Tensor, optimizer: torch.optim.Optimizer | None) -> Callable[[], None]:
    def step() -> None:
        model.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        if optimizer is not None:
            optimizer.step()

    return step


def _sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, nesterov=True, weight_decay=5e-4)


def measure(
    name: str, factory: Callable[[], nn.Module], x: Tensor, classes: int, density: float, rounds: int = 5
) -> TrainResult:
    """One row for the model that `factory` makes, on batch `x` with random labels."""
    torch.manual_seed(0)
    y = torch.randint(classes, (x.shape[0],))
    base = factory()
    nchw, last, sparse = (
        copy.deepcopy(base),
        copy.deepcopy(base).to(memory_format=torch.channels_last),
        sparsified(base, density),
    )
    x_last = x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x
    inputs = {"dense NCHW": (nchw, x), "dense channels_last": (last, x_last), "sparse": (sparse, x)}
    candidates = {key: _step(model, batch, y, None) for key, (model, batch) in inputs.items()}
    candidates |= {f"{key} + optimizer": _step(model, batch, y, _sgd(model)) for key, (model, batch) in inputs.items()}
    seconds = medians(candidates, rounds)
    best = min(("dense NCHW", "dense channels_last"), key=seconds.__getitem__)
    best_step = min(seconds["dense NCHW + optimizer"], seconds["dense channels_last + optimizer"])
    return TrainResult(
        model=name,
        density=density,
        dense_ms=1e3 * seconds[best],
        dense_setting=best,
        sparse_ms=1e3 * seconds["sparse"],
        ratio=seconds[best] / seconds["sparse"],
        dense_step_ms=1e3 * best_step,
        sparse_step_ms=1e3 * seconds["sparse + optimizer"],
        step_ratio=best_step / seconds["sparse + optimizer"],
    )
