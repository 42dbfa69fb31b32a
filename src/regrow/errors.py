"""What can go wrong, said so that the user knows what, where and the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LISTED = 16
_NEAR = 0.6


class RegrowError(Exception):
    """Base of every error that regrow raises on purpose; ``status`` is the exit code of a command that it ends.

    A command shows it in one line, or, if it ``lists`` things, in the lines that it has.
    """

    status = 2
    lists = False


class ConfigurationError(RegrowError, ValueError):
    """An argument is unknown, out of range or missing."""


class UnsupportedError(RegrowError, TypeError):
    """A model, optimizer or parameter of a kind that regrow refuses to handle."""


class MissingPackageError(RegrowError, ImportError):
    """An optional package is not installed, or fails to import."""


class UnreachableError(RegrowError, RuntimeError):
    """A cluster cannot be joined or started."""


class StateError(RegrowError, RuntimeError):
    """Saved state, masks and weights do not fit together."""


class DivergenceError(RegrowError):
    """A run cannot come to a result; the same command would end the same way."""

    status = 3


class NonFiniteError(DivergenceError, FloatingPointError):
    """A loss, a score or a topology update met NaN or infinity; nothing was changed."""


class CollapseError(DivergenceError):
    """A network has named one class for everything for as long as the run's patience goes."""

    def __init__(self, message: str, patience: int) -> None:
        super().__init__(message)
        self.patience = patience


class RegrowWarning(UserWarning):
    """Base of every warning that regrow gives on purpose: what happens instead, and the remedy, in one line."""


class ScheduleWarning(RegrowWarning):
    """A schedule of topology updates that never takes effect in the run it was made for."""


class StartWarning(RegrowWarning):
    """Weights that look trained are about to be set to zero at random."""


class ScopeWarning(RegrowWarning):
    """Most weights of a model are outside the scope without having been asked for."""


class CheckpointWarning(RegrowWarning):
    """A checkpoint is damaged, or was written under other conditions than it is read."""


class ExecutionWarning(RegrowWarning):
    """Layers are computed otherwise than measurements would have it, or measurements are lost."""


def unknown(what: str, given: object, valid: Iterable[str], of: str = "") -> ConfigurationError:
    """Build the error for an unknown name, with the nearest valid one; all of them where none is near, or they are few.

    ``of`` says whose name it would be.

    Example:
        >>> str(unknown("method", "rigel", ["rigl", "set"]))
        "unknown method 'rigel': did you mean 'rigl'? Valid: rigl, set"
        >>> str(unknown("method", "adam", ["rigl", "set"]))
        "unknown method 'adam'. Valid: rigl, set"
    """
    options = sorted(set(valid))
    name = f"unknown {what} {given!r}{of and f' of {of}'}"
    if not options:
        return ConfigurationError(f"{name}: there is none to choose from")
    near = nearest(str(given), options)
    if near is None:
        return ConfigurationError(f"{name}. Valid: {', '.join(options)}")
    listed = f" Valid: {', '.join(options)}" if len(options) <= _LISTED else ""
    return ConfigurationError(f"{name}: did you mean {near!r}?{listed}")


def nearest(given: str, options: Iterable[str]) -> str | None:
    """The option that is spelt most alike, capitals aside; None where none is near.

    Example:
        >>> nearest("SET", ["rigl", "set"]), nearest("adam", ["rigl", "set"])
        ('set', None)
    """
    spelt = {option.lower(): option for option in options}
    near = difflib.get_close_matches(given.lower(), spelt, n=1, cutoff=_NEAR)
    return spelt[near[0]] if near else None
