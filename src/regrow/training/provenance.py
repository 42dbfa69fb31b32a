"""With what a run was made, part by part: a resumed one may go on with other code, threads or torch."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regrow.errors import CheckpointWarning


def code_of(environment: Path) -> str:
    """The code that a run's ``environment.json`` names, for checkpoints from before they did so themselves."""
    described = json.loads(environment.read_text()) if environment.is_file() else {}
    return described.get("code", "unknown")


def joined(earlier: str, now: str) -> str:
    """The code of every part of a run.

    Example:
        >>> joined("a", "b"), joined("a+b", "b")
        ('a+b', 'a+b')
    """
    return earlier if earlier.rpartition("+")[2] == now else f"{earlier}+{now}"


def warn_of_changes(saved: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Say what is not as it was when the run was saved."""
    for key, value in now.items():
        if saved[key] != value:
            warnings.warn(
                f"resuming with {key} = {value}, saved with {saved[key]}: results may differ in the last bits",
                CheckpointWarning,
                stacklevel=4,
            )
