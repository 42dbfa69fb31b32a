"""Checks of a method's options: what, which value, what would be valid."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from regrow.errors import ConfigurationError, unknown


def within(
    name: str, value: float, low: float, high: float, *, open_low: bool = False, open_high: bool = False
) -> None:
    """Refuse a number outside an interval; ``open_low`` and ``open_high`` leave the border itself out."""
    fits = isinstance(value, (int, float)) and low <= value <= high
    if not fits or (open_low and value == low) or (open_high and value == high):
        left, right = "(" if open_low else "[", ")" if open_high else "]"
        raise ConfigurationError(f"{name} must lie in {left}{low:g}, {high:g}{right}, got {value!r}")


def at_least(name: str, value: float, low: float) -> None:
    """Refuse a number below a bound."""
    if not isinstance(value, (int, float)) or not value >= low:
        raise ConfigurationError(f"{name} must be at least {low:g}, got {value!r}")


def above(name: str, value: float, low: float) -> None:
    """Refuse a number that is not larger than a bound."""
    if not isinstance(value, (int, float)) or not value > low:
        raise ConfigurationError(f"{name} must be larger than {low:g}, got {value!r}")


def rate(name: str, value: float | None) -> None:
    """Refuse a learning rate that is not positive; None is another's."""
    if value is not None:
        above(name, value, 0)


def ordered(first: str, low: float, second: str, high: float) -> None:
    """Refuse a begin that does not lie before its end, both shares of the run."""
    within(first, low, 0, 1)
    within(second, high, 0, 1)
    if not low < high:
        raise ConfigurationError(f"{first} must lie before {second}, got {low!r} and {high!r}")


def stages(name: str, value: Sequence[float]) -> None:
    """Refuse what is not a list of increasing shares of the run."""
    numbers = isinstance(value, (list, tuple)) and all(isinstance(share, (int, float)) for share in value)
    if not numbers or not all(0 < share < 1 for share in value) or list(value) != sorted(set(value)):
        raise ConfigurationError(f"{name} must be increasing shares of the run between 0 and 1, got {value!r}")


def finetune(budget: str, steps: int) -> int | None:
    """Steps with fixed masks at the end of a run that is cut to its budget; None where its density is an outcome."""
    one_of("budget", budget, ("outcome", "exact"))
    at_least("finetune_steps", steps, 0)
    if budget == "exact":
        return int(steps)
    if steps:
        raise ConfigurationError("finetune_steps come after the cut to a budget: say budget='exact' too")
    return None


def one_of(name: str, value: str, valid: Collection[str]) -> None:
    """Refuse an unknown choice, naming the nearest."""
    if value not in valid:
        raise unknown(name, str(value), valid)
