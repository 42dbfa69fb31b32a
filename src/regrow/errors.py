"""What can go wrong, said so that the user knows what, where and the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LISTED = 32


class RegrowError(Exception):
    """Base of every error that regrow raises on purpose."""


class ConfigurationError(RegrowError, ValueError):
    """An argument is unknown, out of range or missing."""


class UnsupportedError(RegrowError, TypeError):
    """A model, optimizer or parameter of a kind that regrow refuses to handle."""


class StateError(RegrowError, RuntimeError):
    """Saved state, masks and weights do not fit together."""


class NonFiniteError(RegrowError, FloatingPointError):
    """A topology update met NaN or infinity; nothing was changed."""


def unknown(what: str, given: str, valid: Iterable[str]) -> ConfigurationError:
    """Build the error for an unknown name, with the nearest valid one.

    Example:
        >>> str(unknown("method", "rigel", ["rigl", "set"]))
        "unknown method 'rigel': did you mean 'rigl'? Valid: rigl, set"
    """
    options = sorted(set(valid))
    near = difflib.get_close_matches(given, options, n=1, cutoff=0.0)
    hint = f"did you mean {near[0]!r}? " if near else ""
    listed = ", ".join(options[:_LISTED]) + (", ..." if len(options) > _LISTED else "")
    return ConfigurationError(f"unknown {what} {given!r}: {hint}Valid: {listed}")
