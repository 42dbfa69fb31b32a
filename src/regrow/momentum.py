"""Growth evidence: gradient and momentum of present *and* missing weights.

The optimizer sees gradients of present weights only, so its state of missing weights is zero. What growth needs of the missing ones is
collected here, in the last K steps before a topology update (the growth window). With momentum coefficient mu a gradient
k steps old weighs mu^k, hence K = ceil(log(tolerance) / log(mu)) steps carry all but ``tolerance`` of it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Muon, NAdam, Optimizer, RAdam

from regrow.errors import ConfigurationError
from regrow.support import Support
from regrow.topology.view import Need

OWN_COEFFICIENT = 0.9
ADAM_EPSILON = 1e-8
SQUARED = ("square_avg", "exp_avg_sq", "max_exp_avg_sq", "sum", "exp_inf", "acc_delta", "variance")

Group = dict[str, Any]


@dataclass(frozen=True)
class Family:
    """How an optimizer smooths gradients: first <- coefficient * first + gain * g.

    ``first`` and ``second`` name its state tensors; where there is no first moment, an own average is kept instead.
    """

    first: str | None
    second: str | None
    coefficient: Callable[[Group], float]
    gain: Callable[[Group], float]

    def paper_scale(self, group: Group) -> float:
        """The factor that turns the buffer into M <- alpha M + (1 - alpha) g, to compare groups with different settings."""
        return (1 - self.coefficient(group)) / self.gain(group) if self.second is None else 1.0


HEAVY_BALL = Family("momentum_buffer", None, lambda g: g["momentum"], lambda g: 1 - g["dampening"])
ADAM = Family("exp_avg", "exp_avg_sq", lambda g: float(g["betas"][0]), lambda g: 1 - float(g["betas"][0]))
MUON = Family("momentum_buffer", None, lambda g: g["momentum"], lambda g: 1 - g["momentum"])
OWN_AVERAGE = Family(None, None, lambda g: OWN_COEFFICIENT, lambda g: 1 - OWN_COEFFICIENT)


def family_of(optimizer: Optimizer, group: Group, pure_gradient: bool = False) -> Family:
    """Which family a parameter group belongs to; an own average wherever the optimizer keeps no first moment."""
    if pure_gradient:
        return OWN_AVERAGE
    if isinstance(optimizer, SGD) and group["momentum"] > 0 and group["dampening"] < 1:
        return HEAVY_BALL
    if isinstance(optimizer, (Adam, AdamW, NAdam, RAdam)):
        return ADAM
    return MUON if isinstance(optimizer, Muon) else OWN_AVERAGE


@functools.lru_cache  # asked for in every step
def window_length(coefficient: float, tolerance: float, interval: int) -> int:
    """K = min(interval, ceil(log tolerance / log mu)); the whole interval for tolerance 0.

    Example:
        >>> window_length(0.9, 1e-3, 540), window_length(0.99, 1e-3, 540), window_length(0.9, 0, 540)
        (66, 540, 540)
    """
    if tolerance <= 0 or not 0 < coefficient < 1:
        return interval
    return max(1, min(interval, math.ceil(math.log(tolerance) / math.log(coefficient))))


class Moments:
    """Smoothed gradients of one parameter, all positions, over the open growth window.

    ``host`` is the optimizer's own family, where it smooths but growth looks at an own average. ``reach`` says which weights the window
    looks at, where that is not all of them.
    """

    def __init__(
        self,
        parameter: Tensor,
        family: Family,
        state: Callable[[], dict[str, Any]],
        group: Callable[[], Group],
        host: Family | None = None,
    ) -> None:
        self.parameter, self.family, self.state, self.group = parameter, family, state, group
        self.host = family if host is None else host
        self.mask: Tensor | None = None
        self.declared: frozenset[Need] = frozenset({"momentum"})
        self.clear()

    def clear(self) -> None:
        """Forget the window."""
        self.first: Tensor | None = None
        self.second: Tensor | None = None
        self.seen = 0
        self.last: Tensor | None = None
        self.reach: Support | None = None

    def collect(self, gradient: Tensor, smooth: bool, stride: int = 1) -> None:
        """Take the dense gradient of one step, averaged over ranks and unscaled; it stands for the ``stride`` steps up to this one.

        M <- mu^s M + gain (1 + mu + ... + mu^(s-1)) g, as if g had been the gradient of all of them.
        """
        self.last = gradient
        if not smooth:
            return
        if self.first is None:
            self.first = torch.zeros_like(gradient)
            self.second = None if self.family.second is None else torch.zeros_like(gradient)
        self._smooth(self.first, self.second, gradient, stride)
        self.seen += stride

    def _smooth(self, first: Tensor, second: Tensor | None, gradient: Tensor, stride: int) -> None:
        group = self.group()
        coefficient = self.family.coefficient(group)
        repeated = sum(coefficient**k for k in range(stride))
        first.mul_(coefficient**stride).add_(gradient, alpha=self._gain(group) * repeated)
        if second is not None:
            beta = float(group["betas"][1])
            second.mul_(beta**stride).addcmul_(gradient, gradient, value=1 - beta**stride)

    def skip(self) -> None:
        """A step of the window without any gradient: optimizers leave such a parameter alone, momentum included."""
        self.last = self._nothing()

    def gradient(self) -> Tensor:
        """The dense gradient of the last step."""
        if self.last is None:
            raise unread_gradient()
        return self.last

    def momentum(self) -> Tensor:
        """The optimizer's momentum where weights are present, the window's where they are missing.

        For the Adam family m / (sqrt(v) + 1e-8), as the sparse-momentum authors score it.
        """
        if not self.declared & {"momentum", "present momentum"}:
            raise unread_momentum()
        first = self._combined(self.family.first, self._first())
        if self.family.second is None:
            return first
        return first / (self.second_moment().sqrt() + ADAM_EPSILON)

    def second_moment(self) -> Tensor:
        """The Adam family's running mean of squared gradients."""
        self.require_second()
        return self._combined(self.family.second, self._second())

    def require_second(self) -> None:
        """An error where the optimizer has no second moments."""
        if self.family.second is None:
            raise ConfigurationError("this criterion needs the second moments of Adam, AdamW, NAdam or RAdam")

    def seeds_for(self, state: str) -> dict[str, Tensor] | None:
        """Seeds as a growth rule asks for them (`Grow.state`); None where grown weights start without state."""
        wanted = state == "seed" or (state == "normalised" and self.host.second is not None)
        return self.seeds() if wanted else None

    def seeds(self) -> dict[str, Tensor]:
        """Optimizer state for weights about to grow, by slot name, from what the window saw."""
        if self.host is not self.family:
            return self._converted()
        moments = ((self.family.first, self._first()), (self.family.second, self._second()))
        return {slot: moment for slot, moment in moments if slot is not None and moment is not None}

    def keep(self, lost: Tensor, rows: slice | None) -> None:
        """Carry the momentum of weights about to be removed over into the window, which stays open."""
        band = slice(None) if rows is None else rows
        betas = self.group()["betas"] if self.family.second is not None else (0.0, 0.0)
        slots = ((self.family.first, self.first, betas[0]), (self.family.second, self.second, betas[1]))
        for slot, mine, beta in slots:
            theirs = self.state().get(slot) if slot else None
            if mine is not None and theirs is not None:
                mine[band] = torch.where(lost, theirs[band].to(mine.dtype) / self._bias(float(beta)), mine[band])

    def _converted(self) -> dict[str, Tensor]:
        """The own average in the units of the optimizer's momentum: equal to it at coefficient 0.9, as missing weights do not decay."""
        if self.host.first is None or self.first is None:
            return {}
        return {self.host.first: self.first * (self._bias(OWN_COEFFICIENT) / self.host.paper_scale(self.group()))}

    def _gain(self, group: Group) -> float:
        sign = -1.0 if group.get("maximize") else 1.0
        # SGD starts its buffer with the whole first gradient, dampening or not.
        started = self.family is not HEAVY_BALL or self.state().get("momentum_buffer") is not None
        return sign * (self.family.gain(group) if started else 1.0)

    def _nothing(self) -> Tensor:
        return torch.zeros_like(self.parameter, dtype=torch.promote_types(self.parameter.dtype, torch.float32))

    def _combined(self, slot: str | None, missing: Tensor | None) -> Tensor:
        present = self.state().get(slot) if slot else None
        if present is None:
            return missing if missing is not None else self._nothing()
        if missing is None or self.mask is None:
            return present
        return torch.where(self.mask, present.to(missing.dtype), missing)

    def _first(self) -> Tensor | None:
        if self.family.second is None or self.first is None:
            return self.first
        return self.first * self._bias(float(self.group()["betas"][0]))

    def _second(self) -> Tensor | None:
        return None if self.second is None else self.second * self._bias(float(self.group()["betas"][1]))

    def _bias(self, beta: float) -> float:
        """What brings a moment of ``seen`` steps to the bias of the optimizer's own moment of all steps."""
        steps = float(self.state().get("step", self.seen))
        return 1.0 if steps == self.seen else (1 - beta**steps) / (1 - beta**self.seen)


def unread_gradient() -> ConfigurationError:
    """The error for a criterion that did not say that it reads gradients."""
    return ConfigurationError(
        "a criterion reads layer.gradient, which was not collected: declare it with @regrow.needs('gradient')"
    )


def unread_momentum() -> ConfigurationError:
    """The error for a criterion that did not say that it reads momentum."""
    return ConfigurationError(
        "a criterion reads layer.momentum, which was not collected: declare it with @regrow.needs('momentum'), or "
        "@regrow.needs('present momentum') if it looks at present weights only"
    )


def shaped_slots(optimizer: Optimizer, parameter: Tensor) -> dict[str, Tensor]:
    """The optimizer's state tensors that hold one number per weight."""
    state = optimizer.state.get(parameter, {})
    return {k: v for k, v in state.items() if isinstance(v, Tensor) and v.shape == parameter.shape}


def reset_slots(
    slots: dict[str, Tensor], lost: Tensor, born: Tensor, present: Tensor, seeds: dict[str, Tensor] | None
) -> None:
    """Zero the state of lost weights; start the state of born ones at zero or from seeds.

    With seeds, a running mean of squares that the window did not measure starts at the mean of the present weights:
    starting at zero would make the first normalised step of a grown weight enormous.
    """
    for name, slot in slots.items():
        slot.masked_fill_(lost | born, 0)
        if seeds is None or not bool(born.any()):
            continue
        if name in seeds:
            slot.copy_(torch.where(born, seeds[name].to(slot.dtype), slot))
        elif name in SQUARED and bool(present.any()):
            slot.masked_fill_(born, float(slot[present].float().mean()))
