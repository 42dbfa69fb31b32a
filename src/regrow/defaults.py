"""Options whose defaults have changed since the first stored runs, and what they mean where nobody names them.

Sparse momentum once let grown weights start at once, as the paper does. Hashes, rows and saved states still leave out what the first
ones left out, so that they mean today what they meant then. Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LETTER: dict[str, Any] = {"grown_momentum": "keep", "warmup": 0.0}
"""Sparse momentum to the paper's letter: grown weights start at once, with the momentum that chose them."""

GENTLE: dict[str, Any] = {"grown_momentum": "auto", "warmup": 0.5}
"""Today's: grown weights begin gently."""

_FIRST = {"sparse-momentum": LETTER}
_NOW = {"sparse-momentum": GENTLE}


def named(method: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with those named whose default has changed: the same run in every release.

    Example:
        >>> named("sparse-momentum", {"warmup": 0.2}), named("sparse-momentum", {"reference": True})["warmup"]
        ({'grown_momentum': 'auto', 'warmup': 0.2}, 0.0)
    """
    return {**_now(method, options), **options}


def as_stored(method: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """What a stored configuration means by its options: one that does not name them is older than the change."""
    return {**_FIRST.get(method, {}), **options}


def differing(method: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """What differs from the first defaults, named or not: in hashes, rows and saved states.

    Example:
        >>> differing("sparse-momentum", {}), differing("sparse-momentum", {"grown_momentum": "keep", "warmup": 0})
        ({'grown_momentum': 'auto', 'warmup': 0.5}, {})
    """
    return _without(_FIRST.get(method, {}), named(method, options))


def shortest(method: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """What must be named today."""
    return _without(_now(method, options), options)


def _now(method: str, options: Mapping[str, Any]) -> dict[str, Any]:
    return (_FIRST if options.get("reference") else _NOW).get(method, {})


def _without(known: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key not in known or value != known[key]}
