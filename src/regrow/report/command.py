"""The command that repeats a run: the nearest preset and what differs from it."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from typing import Any

from regrow.config import Config, as_dict, with_options
from regrow.defaults import shortest
from regrow.presets import PRESETS

_RECORDED_ONLY = frozenset({"checkpoint_seconds", "keep_checkpoints", "tensorboard"})


def command(config: Config) -> str | None:
    """``regrow train PRESET --key value ...``; None where a value cannot be said on a command line.

    Example:
        >>> from dataclasses import replace
        >>> command(replace(PRESETS["mnist-lenet5"], seed=3))
        'regrow train mnist-lenet5 --seed 3 --sparse.execution masked'
    """
    changes = {name: _difference(config, _as_trained(preset)) for name, preset in PRESETS.items()}
    found = {name: change for name, change in changes.items() if change is not None}
    if not found:
        return None
    name = min(found, key=lambda key: (len(found[key]), key))
    words = ["regrow", "train", name]
    for key, value in found[name].items():
        words += [f"--{key}", value if isinstance(value, str) else _text(value)]
    return shlex.join(words)


def _as_trained(preset: Config) -> Config:
    """What `regrow train` makes of a preset."""
    return replace(preset, sparse=replace(preset.sparse, execution="auto"))


def _difference(config: Config, preset: Config) -> dict[str, Any] | None:
    mine, theirs = (_flat(as_dict(with_options(each, shortest))) for each in (config, preset))
    if set(theirs) - set(mine):
        # An option that only the preset sets cannot be unset by an override.
        return None
    return {
        key: value
        for key, value in mine.items()
        if key not in _RECORDED_ONLY and (key not in theirs or theirs[key] != value)
    }


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def _text(value: Any) -> str:
    return json.dumps(value)
