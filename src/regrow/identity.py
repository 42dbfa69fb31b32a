"""What makes two runs the same run: the arguments of ``sparsify`` as plain values, compared when states are loaded and between ranks."""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Mapping
from dataclasses import fields
from types import CodeType
from typing import TYPE_CHECKING, Any

from regrow.errors import StateError
from regrow.methods.method import Method
from regrow.ranks import Ranks

if TYPE_CHECKING:
    from regrow.network import SparseNetwork

# What every release wrote: a state without them is no state.
KNOWN_TO_ALL = frozenset(
    {"method", "density", "seed", "window_tolerance", "steps", "update_every", "options", "distribution", "momentum"}
)
# Settings that stand there in another form, or show in the masks.
_OTHERWISE = frozenset({"method", "clock", "pure_gradient", "start", "samples"})
_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def identity_of(network: SparseNetwork) -> dict[str, Any]:
    """Everything that decides a run besides model and data."""
    settings = network.settings
    clock, method = settings.clock, settings.method
    return {
        "method": method.name,
        **{item.name: _plain(getattr(settings, item.name)) for item in fields(settings) if item.name not in _OTHERWISE},
        "steps": clock.steps if clock else None,
        "update_every": clock.every if clock else None,
        "momentum": "gradient" if settings.pure_gradient else "optimizer",
        **_criteria(method),
        "costs": _given_costs(network),
    }


def difference(mine: Mapping[str, Any], other: Mapping[str, Any]) -> str | None:
    """The first key in which two runs differ; what one of them does not know (an older release) is not compared."""
    return next((key for key in mine if key in other and not _equal(mine[key], other[key])), None)


def agree(ranks: Ranks, identity: dict[str, Any]) -> None:
    """Compare all arguments between ranks once; an error on every rank that names the one that differs."""
    everyone = ranks.gather(identity)
    for rank, other in enumerate(everyone):
        if (key := difference(everyone[0], other)) is not None:
            raise StateError(
                f"ranks differ in {key}: {everyone[0][key]!r} on rank 0, {other[key]!r} on rank {rank}. Give sparsify the same arguments "
                "on every rank (update_every=len(loader) differs where shards are unequal)"
            )


def _given_costs(network: SparseNetwork) -> dict[str, float] | None:
    """What the user says a weight of each layer costs; None where all cost the same, or costs are measured."""
    given = network.prices is None and any(cost != 1 for cost in network.costs)
    return {layer.name: cost for layer, cost in zip(network.layers, network.costs, strict=True)} if given else None


def _criteria(method: Method) -> dict[str, Any]:
    pieces = {
        "prune": getattr(method.prune, "score", None),
        "redistribute": getattr(method.redistribute, "share", None),
        "grow": getattr(method.grow, "score", None),
    }
    return {name: None if piece is None else _plain(piece) for name, piece in pieces.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return _function(value) if callable(value) else value


def _function(function: Any) -> dict[str, str]:
    """A function's name and a checksum of its code, which holds for one version of Python."""
    given: tuple[Any, ...] = ()
    inner = function
    if isinstance(function, functools.partial):
        inner, given = function.func, (function.args, function.keywords)
    name = f"{getattr(inner, '__module__', '')}.{getattr(inner, '__qualname__', type(inner).__qualname__)}"
    code = getattr(inner, "__code__", None) or getattr(type(inner).__call__, "__code__", None)
    return {"name": name, "code": "" if code is None else _checksum(code, inner, given), "python": _PYTHON}


def _checksum(code: CodeType, function: Any, given: tuple[Any, ...]) -> str:
    """Of code and of the numbers and words that it was given: by closure, as defaults, by ``functools.partial``."""
    digest = hashlib.blake2b(digest_size=8)
    _add(digest, code)
    for cell in getattr(function, "__closure__", None) or ():
        if isinstance(cell.cell_contents, (int, float, str, tuple)):
            digest.update(repr(cell.cell_contents).encode())
    for values in (getattr(function, "__defaults__", None), getattr(function, "__kwdefaults__", None), *given):
        if values:
            digest.update(repr(_told(values)).encode())
    return digest.hexdigest()


def _told(values: Any) -> list[Any]:
    """What of some values reads the same in another process."""
    named = sorted(values.items()) if isinstance(values, Mapping) else list(enumerate(values))
    return [(key, value) for key, value in named if isinstance(value, (int, float, str, tuple, type(None)))]


def _add(digest: Any, code: CodeType) -> None:
    digest.update(code.co_code + repr(code.co_names).encode())
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _add(digest, constant)
        else:
            digest.update(repr(constant).encode())


def _equal(mine: Any, other: Any) -> bool:
    if isinstance(mine, dict) and isinstance(other, dict) and {"code", "python"} <= set(mine) & set(other):
        compared = ("name", "code") if mine["python"] == other["python"] else ("name",)
        return all(mine[key] == other[key] for key in compared)
    return mine == other
