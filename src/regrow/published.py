"""Settings that methods were published with, or cannot do without, where a preset made for another method has others.

Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from regrow.config import Config, from_dict
from regrow.ranges import value_at

_ADAM: dict[str, Any] = {
    "optimizer.name": "adam",
    "optimizer.lr": 1e-3,
    "optimizer.weight_decay": 0.0,
    "schedule.kind": "cosine",
}

SUITED: dict[str, dict[str, Any]] = {
    "variational-dropout": _ADAM,
    "l0": _ADAM,
    "bayesian-compression": _ADAM,
    "soft-weight-sharing": _ADAM,
}
"""Method -> configuration keys and their values: Adam and no weight decay for penalties that stand in its place."""


def suited(config: Config, given: Collection[str]) -> tuple[Config, list[str]]:
    """The configuration with its method's own settings, but for keys that the user has ``given``, and what changed."""
    changed = []
    for path, value in SUITED.get(config.sparse.method, {}).items():
        if path not in given and value_at(config, path) != value:
            section, key = path.split(".")
            config = from_dict({section: {key: value}}, config)
            changed.append(f"{path} = {value}")
    return config, changed


def paths_of(values: Any, prefix: str = "") -> list[str]:
    """The keys of nested values.

    Example:
        >>> paths_of({"epochs": 3, "sparse": {"density": 0.1}})
        ['epochs', 'sparse.density']
    """
    found: list[str] = []
    for key, value in values.items():
        path = prefix + key
        found += paths_of(value, path + ".") if isinstance(value, dict) and path != "sparse.options" else [path]
    return found
