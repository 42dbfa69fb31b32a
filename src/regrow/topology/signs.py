"""Signs that positions keep for ever (DEEP-R): that of the first weight where one was present, elsewhere a coin.

A coin is a function of seed and position, so that compact storage remembers signs of first weights only.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from regrow import randomness
from regrow.marks import placed, places

_SIGN, _KNOWN, _SEED = "sign", "signed", "sign_seed"


class Signed(Protocol):
    """A layer in a step or an update; ``where`` says which of its weights are shown, None for all."""

    weight: Tensor
    memory: dict[str, Tensor]

    @property
    def where(self) -> Tensor | None: ...  # noqa: D102


def fix(layer: Signed, mask: Tensor, source: torch.Generator) -> None:
    """Draw the signs of a layer."""
    own = layer.weight.sign().to(torch.int8)
    if layer.where is not None:
        known = own != 0
        layer.memory.update({_SIGN: own[known], _KNOWN: layer.where[known], _SEED: torch.tensor(source.initial_seed())})
        return
    everywhere = torch.arange(layer.weight.numel())
    coins = randomness.coins(everywhere, source.initial_seed()).view(layer.weight.shape).to(own.device)
    layer.memory[_SIGN] = torch.where(mask & (own != 0), own, coins)


def follow(layer: Signed) -> None:
    """Let the signs be those of the weights as they are."""
    layer.memory[_SIGN] = layer.weight.sign().to(torch.int8)
    if layer.where is not None:
        layer.memory[_KNOWN] = layer.where
        layer.memory.pop(_SEED, None)


def shown(layer: Signed) -> Tensor:
    """The signs of the weights that a layer shows, in their type."""
    found = layer.memory[_SIGN] if layer.where is None else at(layer.memory, layer.where)
    return found.to(layer.weight.dtype)


def at(memory: dict[str, Tensor], positions: Tensor) -> Tensor:
    """The signs at some positions of a layer."""
    sign, known = memory[_SIGN], memory.get(_KNOWN)
    if known is None:
        return sign.take(positions)
    if _SEED not in memory:
        return placed(sign, known, positions)
    coins = randomness.coins(positions, int(memory[_SEED]))
    return torch.where(places(known, positions) < 0, coins, placed(sign, known, positions))
