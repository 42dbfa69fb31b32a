"""Parameters beside the weights: owned by the handle, stepped by an optimizer of the kind that the weights have."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from regrow.errors import ConfigurationError, StateError, UnsupportedError
from regrow.weighting import Side, Trained, Weighting

if TYPE_CHECKING:
    from regrow.network import SparseNetwork

# How an optimizer computes, not what: side parameters are small, and take torch's plain way.
_IMPLEMENTATION = ("params", "foreach", "fused", "capturable", "differentiable")
_OWN = (*_IMPLEMENTATION, "lr", "weight_decay", "initial_lr")


class SideParameters:
    """Side parameters of every layer (``layers``) and of the whole network (``shared``)."""

    def __init__(self, network: SparseNetwork, weighting: Weighting, views: Sequence[Trained]) -> None:
        self.network = network
        sides = [weighting.side(view) if weighting.side else {} for view in views]
        common = weighting.shared(views) if weighting.shared else {}
        self.layers = [{name: _parameter(side) for name, side in found.items()} for found in sides]
        self.shared = {name: _parameter(side) for name, side in common.items()}
        self._sides = [side for found in (*sides, common) for side in found.values()]
        self._start = [self._rate_of(place) for place in range(len(self._sides))]
        self.optimizer = _twin(network.parameters[0].optimizer, self.every()) if self._sides else None

    def every(self) -> list[nn.Parameter]:
        """All of them, layer by layer, then the shared ones."""
        return [p for found in (*self.layers, self.shared) for p in found.values()]

    @torch.no_grad()
    def step(self) -> None:
        """One step on the gradients at hand; those without one rest."""
        if self.optimizer is None:
            return
        for place, group in enumerate(self.optimizer.param_groups):
            theirs, side = self._group_of(place), self._sides[place]
            group.update({key: value for key, value in theirs.items() if key not in _OWN and key in group})
            group["lr"] = theirs["lr"] if side.lr is None else side.lr * theirs["lr"] / self._start[place]
            group["weight_decay"] = theirs["weight_decay"] if side.weight_decay is None else side.weight_decay
        self.optimizer.step()
        for parameter in self.every():
            parameter.grad = None

    def state(self) -> dict[str, Any]:
        """Values and optimizer state: tensors and plain numbers."""
        state = {} if self.optimizer is None else self.optimizer.state_dict()["state"]
        return {
            "values": {name: parameter.detach().clone() for name, parameter in self._named()},
            "optimizer": {
                str(place): {key: value.clone() if isinstance(value, Tensor) else value for key, value in slots.items()}
                for place, slots in state.items()
            },
            "start": list(self._start),
        }

    def check(self, state: dict[str, Any]) -> None:
        """Refuse the state of other side parameters."""
        saved, own = state["values"], dict(self._named())
        if odd := set(saved) ^ set(own):
            raise StateError(f"side parameter {min(odd)} is in one of state and method only: load it into the same run")
        for name, parameter in own.items():
            if saved[name].shape != parameter.shape:
                raise StateError(
                    f"side parameter {name} has shape {tuple(saved[name].shape)} in the saved state, here {tuple(parameter.shape)}"
                )
        if len(state["start"]) != len(self._start) or not {*state["optimizer"]} <= {*map(str, range(len(own)))}:
            raise StateError("side of the saved state has other numbers of parameters: load it into the same run")

    @torch.no_grad()
    def restore(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state`."""
        self.check(state)
        for name, parameter in self._named():
            parameter.copy_(state["values"][name])
        self._start = list(state["start"])
        if self.optimizer is not None:
            groups = self.optimizer.state_dict()["param_groups"]
            slots = {
                int(place): {k: v.clone() if isinstance(v, Tensor) else v for k, v in found.items()}
                for place, found in state["optimizer"].items()
            }
            self.optimizer.load_state_dict({"state": slots, "param_groups": groups})

    def _named(self) -> Iterator[tuple[str, nn.Parameter]]:
        for layer, found in zip(self.network.layers, self.layers, strict=True):
            yield from ((f"{layer.name}.{name}", parameter) for name, parameter in found.items())
        yield from self.shared.items()

    def _group_of(self, place: int) -> dict[str, Any]:
        """The parameter group whose schedule a side parameter follows: its layer's, or the first layer's."""
        counts = [len(found) for found in self.layers]
        index = 0
        while index < len(counts) and place >= counts[index]:
            place, index = place - counts[index], index + 1
        layer = self.network.layers[index if index < len(counts) else 0]
        return self.network.of(layer).group()

    def _rate_of(self, place: int) -> float:
        """The group's learning rate before its schedule, which a learning rate of one's own is a multiple of."""
        group = self._group_of(place)
        rate = float(group.get("initial_lr", group["lr"]))
        if self._sides[place].lr is not None and not rate > 0:
            raise ConfigurationError(
                "side parameters follow the schedule of the learning rate, which is 0 at sparsify: set it first"
            )
        return rate


def _parameter(side: Side) -> nn.Parameter:
    return nn.Parameter(side.init.detach().clone())


def _twin(optimizer: Optimizer, parameters: list[nn.Parameter]) -> Optimizer:
    """A second optimizer of the same kind and settings, one group per parameter."""
    known = inspect.signature(type(optimizer).__init__).parameters
    settings = {k: v for k, v in optimizer.defaults.items() if k in known and k not in _IMPLEMENTATION}
    try:
        return type(optimizer)([{"params": [parameter]} for parameter in parameters], **settings)
    except (TypeError, ValueError) as error:
        raise UnsupportedError(
            f"no second {type(optimizer).__name__} can be made for the parameters that this method trains beside the weights "
            f"({error}): use SGD, Adam or AdamW"
        ) from error


def slots_of(optimizer: Optimizer) -> int:
    """How many numbers an optimizer keeps for each weight, tried on a small one; 0 where no second optimizer of its kind can be made."""
    tried = nn.Parameter(torch.zeros(2, 2))
    tried.grad = torch.zeros_like(tried)
    try:
        twin = _twin(optimizer, [tried])
    except UnsupportedError:
        return 0
    twin.step()
    return sum(isinstance(slot, Tensor) and slot.shape == tried.shape for slot in twin.state[tried].values())
