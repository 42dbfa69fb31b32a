"""What rows and results of a run look like: files may be damaged, or come from anybody."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

from regrow.errors import StateError
from regrow.kinds import Test, is_count, is_number, or_none

_SEAL = "sha256"


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def has_form(row: Any, needed: Mapping[str, Test], optional: Mapping[str, Test]) -> bool:
    """Whether a row has what is needed, and nothing else of a wrong kind."""
    if not isinstance(row, dict) or not all(key in row and test(row[key]) for key, test in needed.items()):
        return False
    return all(test(row[key]) for key, test in optional.items() if key in row)


_MAYBE = or_none(is_number)


def is_metrics_row(row: Any) -> bool:
    """A row of ``metrics.jsonl``."""
    needed = {"kind": lambda kind: kind in ("train", "validation", "test"), "step": is_count}
    numbers = dict.fromkeys(("epoch", "loss", "accuracy"), is_number)
    return has_form(
        row,
        {**needed, **numbers},
        {"updates": is_count, **dict.fromkeys(("top5", "lr", "density", "prune_rate"), _MAYBE)},
    )


def is_speed_row(row: Any) -> bool:
    """A row of ``speed.jsonl``: a step and numbers."""
    return has_form(row, {"step": is_count}, dict.fromkeys(row, is_number) if isinstance(row, dict) else {})


def is_ending(found: Any) -> bool:
    """The content of ``result.json`` or ``diverged.json``."""
    numbers = (
        "test_accuracy", "test_error", "test_top5", "test_loss", "density", "macs_share", "images_per_second", "nonzeros", "weights",
        "dense_weights", "updates",
    )  # fmt: skip
    optional = {**dict.fromkeys(numbers, _MAYBE), **dict.fromkeys(("code", "message", "execution"), _is_text)}
    optional |= {
        "patience": is_count,
        "speedup": or_none(lambda value: isinstance(value, dict) and all(map(_MAYBE, value.values()))),
    }
    required = {"identity": _is_text, "steps": is_count}
    return has_form(found, required, optional) and _holds(found, {*required, *optional})


def sealed(ending: Mapping[str, Any]) -> bytes:
    """The bytes of ``result.json`` or ``diverged.json``, with a hash by which a changed digit is noticed."""
    return json.dumps({**ending, _SEAL: _seal(ending)}, indent=1).encode()


def _holds(ending: Mapping[str, Any], known: Set[str]) -> bool:
    """Whether the hash is that of the rest. Files of releases without one count as they are, unless a key may have been its name."""
    if _SEAL not in ending:
        return ending.keys() <= known
    return ending[_SEAL] == _seal({key: ending[key] for key in ending if key != _SEAL})


def _seal(ending: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(ending, sort_keys=True).encode()).hexdigest()[:16]


def read_json(path: Path, test: Test) -> Any:
    """The content of a JSON file of a run, or None where there is no such file; damage is an error that names it."""
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise damaged(path, str(error)) from error
    if not test(found):
        raise damaged(path, "not what a run writes")
    return found


def damaged(path: Path, problem: str) -> StateError:
    """What to say of a file that a run writes anew by itself."""
    return StateError(f"{path} is damaged ({problem}): delete it, and repeat regrow train to write it anew")
