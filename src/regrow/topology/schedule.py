"""When updates happen, how the prune rate decays, how the density moves: plain functions of the step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from regrow.errors import ConfigurationError

Curve = Callable[[float], float]
"""A number as a function of progress in [0, 1] through the run."""


def constant(value: float) -> Curve:
    """The same value throughout."""
    return lambda progress: value


def cosine(start: float, end: float = 0.0, until: float = 1.0) -> Curve:
    """end + (start - end)/2 * (1 + cos(pi * progress / until)).

    Example:
        >>> [round(cosine(0.2)(t), 3) for t in (0, 0.5, 1)]
        [0.2, 0.1, 0.0]
    """
    return lambda progress: end + (start - end) / 2 * (1 + math.cos(math.pi * min(progress / until, 1.0)))


def linear(start: float, end: float = 0.0, until: float = 1.0) -> Curve:
    """start + (end - start) * progress / until."""
    return lambda progress: start + (end - start) * min(progress / until, 1.0)


def cubic(start: float, end: float, begin: float = 0.0, until: float = 1.0) -> Curve:
    """end + (start - end) * (1 - (t - begin)/(until - begin))^3: gradual magnitude pruning's density."""

    def value(progress: float) -> float:
        position = min(max((progress - begin) / (until - begin), 0.0), 1.0)
        return end + (start - end) * (1 - position) ** 3

    return value


def in_rounds(target: float, begin: float, until: float, rounds: int) -> Curve:
    """All weights up to ``begin``, then ``target`` reached in equal ratios, the last of them before ``until``.

    Example:
        >>> [round(in_rounds(0.01, 0.5, 0.7, 2)(t), 6) for t in (0.5, 0.55, 0.65, 0.9)]
        [1.0, 0.1, 0.01, 0.01]
    """

    def value(progress: float) -> float:
        if progress <= begin:
            return 1.0
        done = (progress - begin) / (until - begin) * rounds if rounds > 1 else 0.0
        number = min(rounds, 1 + math.floor(done))
        return target if number == rounds else target ** (number / rounds)

    return value


def updates_for_rounds(begin: float, until: float, rounds: int) -> int:
    """So many updates, evenly spaced over a run, that each round of :func:`in_rounds` has one of its own.

    Example:
        >>> updates_for_rounds(0.4, 0.8, 4)
        20
    """
    shortest = min((until - begin) / rounds, 1 - until) if until > begin else 1 - begin
    return math.ceil(round(2 / shortest, 6))


def steps(values: Sequence[float], borders: Sequence[float]) -> Curve:
    """``values[k]`` where k counts the borders already passed."""
    return lambda progress: values[sum(progress >= border for border in borders)]


DECAYS: dict[str, Callable[..., Curve]] = {
    "cosine": cosine,
    "linear": linear,
    "constant": lambda start, end=0.0: constant(start),
}


@dataclass(frozen=True)
class When:
    """When topology updates happen.

    Args:
        every: steps between updates, an own default of the method; ``"epoch"`` where the user's epoch counts.
        until: share of the run after which updates stop.
        begin: share of the run before which none happens.
        phase: ``after`` the optimizer step, or ``instead`` of it (RigL: the mask update replaces the weight update).
        stretch: (share of the run, factor) pairs that lengthen the interval as training goes on (DSR).
        epochs: how many epochs, where ``every`` is ``"epoch"``.
        journal_every: methods that rewire after each step record only every so many updates.
        last: also after the last step of the run, which other updates leave alone.
        at_least: so many in a run, where its epochs are too few to follow the method's schedule.
    """

    every: int | Literal["epoch"] = "epoch"
    until: float = 1.0
    begin: float = 0.0
    phase: Literal["after", "instead"] = "after"
    stretch: tuple[tuple[float, int], ...] = ()
    epochs: int = 1
    journal_every: int = 1
    last: bool = False
    at_least: int = 1

    def interval(self, steps: int | None, epoch: int) -> int:
        """Steps between updates in a run of ``steps`` (None: without an end), where the user does not say.

        Example:
            >>> When("epoch", at_least=20).interval(1620, epoch=540), When("epoch").interval(1620, epoch=540)
            (81, 540)
        """
        if self.every != "epoch":
            return self.every
        longest = epoch * self.epochs
        return longest if steps is None else max(1, min(longest, steps // self.at_least))


def doubling(stages: Sequence[float]) -> tuple[tuple[float, int], ...]:
    """A stretch that doubles the interval at each of these shares of the run.

    Example:
        >>> doubling([0.25, 0.5])
        ((0.25, 2), (0.5, 4))
    """
    return tuple((share, 2 ** (k + 1)) for k, share in enumerate(stages))


@dataclass(frozen=True)
class Clock:
    """The run's time line: counts optimizer steps, knows when the next update is due."""

    when: When
    every: int
    steps: int | None

    def progress(self, step: int) -> float:
        """Share of the run done; 0 where the length is unknown."""
        return min(step / self.steps, 1.0) if self.steps else 0.0

    def interval(self, step: int) -> int:
        """Steps between updates around ``step``."""
        factor = 1
        for border, value in self.when.stretch:
            factor = value if self.progress(step) >= border else factor
        return self.every * factor

    def due(self, step: int) -> bool:
        """Whether an update belongs to the moment after ``step`` finished steps.

        ``after``: after each full interval but not after the last step of the run. ``instead``: in place of step number
        ``step`` (from 0 on).
        """
        if self.when.last and step == self.steps:
            return True
        if step % self.interval(step) or (step == 0 and self.when.phase == "after"):
            return False
        if self.steps is None:
            return True
        progress = step / self.steps  # correctly rounded, as a share the user writes is; steps * until would not be
        last = 1.0 if self.when.phase == "after" else self.when.until
        return progress < last and self.when.begin <= progress <= self.when.until

    def last_due(self) -> int | None:
        """The last moment of the run at which an update is due; None if there is none, or no end."""
        if self.steps is None:
            return None
        if self.when.last:
            return self.steps
        moments = range(self.steps // self.every * self.every, -1, -self.every)
        return next((moment for moment in moments if self.due(moment)), None)

    def next_due(self, step: int) -> int | None:
        """The first moment at or after ``step`` at which an update is due; None if there is none.

        An interval is constant between two borders of its stretch, so that stepping by it cannot miss a moment twice.
        """
        every = self.every
        candidate = -(-step // every) * every
        while self.steps is None or candidate < self.steps:
            if self.due(candidate):
                return candidate
            candidate += every
        return self.steps if self.when.last and self.steps is not None and step <= self.steps else None


def require_steps(name: str, given: int | None) -> int:
    """The number of steps, or the error that says why it is needed."""
    if given is None:
        raise ConfigurationError(
            f"method {name!r} has a schedule over the whole run: pass steps=<number of optimizer steps>, e.g. epochs * len(loader)"
        )
    return given
