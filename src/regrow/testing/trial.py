"""A tiny training run on which a method is examined step by step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from regrow.api import sparsify
from regrow.methods import Method, build
from regrow.momentum import shaped_slots
from regrow.topology.distribution import budget

STEPS = 12
UPDATE_EVERY = 2
SAMPLES = 100
MakeModel = Callable[[], nn.Module]
MakeOptimizer = Callable[[list[nn.Parameter]], Optimizer]


def small_network() -> nn.Module:
    """A convolution and two linear layers, 224 weights, for inputs of shape [2, 4, 4]."""
    return nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3)
    )  # fmt: skip


def one_weight_each() -> nn.Module:
    """Three layers of a single weight."""
    return nn.Sequential(
        nn.Flatten(), nn.AvgPool1d(32), nn.Linear(1, 1), nn.Tanh(), nn.Linear(1, 1), nn.Tanh(), nn.Linear(1, 1)
    )


def all_alike() -> nn.Module:
    """Every weight of a layer has the same value, so that scores tie."""
    network = small_network()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.fill_(0.1 if parameter.ndim > 1 else 0.0)
    return network


def dead_units() -> nn.Module:
    """No unit of the hidden layers ever fires: gradient and momentum of the weights before them are zero."""
    network = small_network()
    with torch.no_grad():
        for name in ("0.bias", "3.bias"):
            network.get_parameter(name).fill_(-1e3)
    return network


def sgd(parameters: list[nn.Parameter]) -> Optimizer:
    """SGD with Nesterov momentum."""
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True)


OPTIMIZERS: dict[str, MakeOptimizer] = {
    "plain SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "SGD with weight decay": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-2),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5),
}


def fitting_optimizers(subject: Subject) -> dict[str, MakeOptimizer]:
    """The optimizers that a method can be tried with: those without weight decay, where it forbids one."""
    weighting = subject.recipe.weighting
    if weighting is None or weighting.decays:
        return OPTIMIZERS
    plain = {"AdamW": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True, weight_decay=0.0)}
    return {name: make for name, make in OPTIMIZERS.items() if "decay" not in name} | plain


@dataclass(frozen=True)
class Subject:
    """The method under examination, and how it is called."""

    method: str | Method
    options: Mapping[str, Any] = field(default_factory=dict)
    density: float = 0.3
    storage: Literal["dense", "compact"] = "dense"

    @property
    def recipe(self) -> Method:
        """The method as a record of pieces."""
        return build(self.method, dict(self.options))


class Trial:
    """One run of a subject: a model, its optimizer, its handle, and the data of each step."""

    def __init__(
        self,
        subject: Subject,
        *,
        network: MakeModel = small_network,
        optimizer: MakeOptimizer = sgd,
        density: float | None = None,
        dtype: torch.dtype = torch.float32,
        model_seed: int = 1,
        process_group: Any = False,
    ) -> None:
        self.subject, self.dtype, self.done = subject, dtype, 0
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(model_seed)
            self.model = network().to(dtype)
        self.optimizer = optimizer(list(self.model.parameters()))
        recipe = subject.recipe
        inputs, targets = self.batch(-1)
        labelled = [(self.batch(-k)[0], torch.arange(6) % 3) for k in (1, 2)]
        calibrations = {"loss": lambda: self.loss(inputs, targets), "input": inputs, "batches": labelled, None: None}
        self.handle = sparsify(
            self.model,
            self.optimizer,
            subject.method,
            density=None if recipe.free_of_density else subject.density if density is None else density,
            steps=STEPS,
            update_every=UPDATE_EVERY,
            calibration=calibrations[recipe.calibration],
            samples=SAMPLES,
            process_group=process_group,
            storage=subject.storage,
            execution="masked" if subject.storage == "dense" else "sparse",
            **dict(subject.options),
        )

    def batch(self, number: int) -> tuple[Tensor, Tensor]:
        """The data of one step, a function of its number only."""
        source = torch.Generator().manual_seed(1000 + number)
        inputs = torch.randn(6, 2, 4, 4, generator=source, dtype=torch.float64).to(self.dtype)
        return inputs, torch.randn(6, 3, generator=source, dtype=torch.float64).to(self.dtype)

    def loss(self, inputs: Tensor, targets: Tensor, model: nn.Module | None = None) -> Tensor:
        """Mean squared error, of a copy of the model where one is given."""
        outputs = (self.model if model is None else model)(inputs)
        return (outputs - targets[:, : outputs.shape[-1]]).square().mean()

    def backward(self) -> None:
        """Gradients of the coming step."""
        self.optimizer.zero_grad()
        self.loss(*self.batch(self.done)).backward()

    def step(self) -> None:
        """One optimizer step; methods with rounds end one after every fourth step."""
        self.backward()
        self.optimizer.step()
        self.done += 1
        if self.handle.method.rounds is not None and self.done % 4 == 0:
            self.handle.rewind()

    def run(self, steps: int = STEPS) -> Iterator[Trial]:
        """Step until ``steps`` are done, stopping after each."""
        while self.done < steps:
            self.step()
            yield self

    def masks(self) -> list[Tensor]:
        """Copies of the masks, layer by layer."""
        return [mask.clone() for mask in self.handle.masks.values()]

    def layers(self) -> Iterator[tuple[str, Tensor, Tensor, dict[str, Tensor]]]:
        """Name, weight, mask and optimizer state of every sparse layer."""
        for layer in self.handle.network.layers:
            slots, sparse = shaped_slots(self.optimizer, layer.parameter), self.handle.network.of(layer)
            yield (
                layer.name,
                layer.band(sparse.dense(layer.parameter.detach())),
                self.handle.network.mask(layer),
                {name: layer.band(sparse.dense(slot)) for name, slot in slots.items()},
            )

    def tensors(self) -> dict[str, Tensor]:
        """Copies of everything that must be equal in equal runs: weights, masks, optimizer state."""
        found = {f"model.{k}": v.clone() for k, v in self.model.state_dict().items()}
        found |= {f"mask.{k}": v.clone() for k, v in self.handle.masks.items()}
        for index, state in enumerate(self.optimizer.state_dict()["state"].values()):
            found |= {f"optimizer.{index}.{k}": torch.as_tensor(v).clone() for k, v in state.items() if v is not None}
        return found

    def prescribed(self) -> int:
        """The number of weights that the declared rule prescribes now, worked out apart from the handle's own count."""
        handle, method = self.handle, self.handle.method
        sizes = [mask.numel() for mask in handle.masks.values()]
        if method.fixed_counts is not None:
            return sum(method.fixed_counts(handle.network.layers))
        density = handle.settings.density
        if method.rounds is not None:
            return budget(max(density, method.rounds.keep**handle.round), sizes)
        if method.density is None:
            return budget(density, sizes)
        clock = handle.settings.clock
        last = max((t for t in range(handle.step + 1) if self._updated_by(t)), default=0)
        return budget(method.density(density)(clock.progress(last) if clock else 0.0), sizes)

    def _updated_by(self, moment: int) -> bool:
        """Whether an update belongs to ``moment`` and lies behind."""
        clock = self.handle.settings.clock
        if clock is None or not clock.due(moment):
            return False
        return moment < self.handle.step or clock.when.phase == "after"


def flatten(state: Any, name: str = "state") -> dict[str, Any]:
    """A nested state as plain values by path, tensors as bytes, so that == compares everything."""
    if isinstance(state, Tensor):
        return {
            name: (
                tuple(state.shape),
                state.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes(),
            )
        }
    if isinstance(state, Mapping):
        parts = [flatten(value, f"{name}.{key}") for key, value in state.items()]
    elif isinstance(state, (list, tuple)):
        parts = [flatten(value, f"{name}.{index}") for index, value in enumerate(state)]
    else:
        return {name: state}
    return {path: value for part in parts for path, value in part.items()}


def differing(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> list[str]:
    """Names at which two collections of tensors differ in any bit (NaN equals NaN)."""
    names = set(a) | set(b)
    return sorted(n for n in names if n not in a or n not in b or not _same(a[n], b[n]))


def _same(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool(torch.equal(a, b)) or (a.is_floating_point() and math.isnan(float((a - b).sum())) and _nan_equal(a, b))


def _nan_equal(a: Tensor, b: Tensor) -> bool:
    return bool(torch.equal(a.isnan(), b.isnan()) and torch.equal(a.nan_to_num(), b.nan_to_num()))
