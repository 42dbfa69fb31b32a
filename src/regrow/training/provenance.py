"""With what a run was made, part by part: a resumed one may go on with other code, threads or torch."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regrow.errors import CheckpointWarning, StateError
from regrow.training.forms import read_json


def code_of(environment: Path) -> str:
    """The code that a run's ``environment.json`` names, for checkpoints from before they did so themselves."""
    described = read_environment(environment)
    return described["code"] if isinstance(described.get("code"), str) else "unknown"


def read_environment(path: Path) -> dict[str, Any]:
    """What a run's ``environment.json`` says; nothing, with a warning, where it is damaged."""
    try:
        return read_json(path, lambda found: isinstance(found, dict)) or {}
    except StateError as error:
        warnings.warn(f"{error}; what it said of the machine is lost", CheckpointWarning, stacklevel=3)
        return {}


def joined(earlier: str, now: str) -> str:
    """The code of every part of a run.

    Example:
        >>> joined("a", "b"), joined("a+b", "b")
        ('a+b', 'a+b')
    """
    return earlier if earlier.rpartition("+")[2] == now else f"{earlier}+{now}"


def warn_of_changes(saved: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Say what is not as it was when the run was saved, as far as that is known."""
    for key, value in now.items():
        if key in saved and saved[key] != value:
            warnings.warn(
                f"resuming with {key} = {value}, saved with {saved[key]}: results may differ in the last bits",
                CheckpointWarning,
                stacklevel=4,
            )
