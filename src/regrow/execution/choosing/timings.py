"""Measured times of this machine, kept in a file: `timings.json` in the cache folder.

Keys say what was measured; they belong to a machine: processor, instruction set, threads, torch and the build of the kernels.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import math
import os
import warnings
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import torch

from regrow import native
from regrow.environment import processor_name
from regrow.errors import ExecutionWarning
from regrow.files import cache_root

FORMAT = 1
_STEPS_PER_OCTAVE = 4


class Timing(NamedTuple):
    """Milliseconds, and the density at which they were measured (1 for dense computation)."""

    ms: float
    density: float


def bucket(density: float) -> str:
    """Densities within a factor of 2**(1/4) share a timing.

    Example:
        >>> bucket(0.05), bucket(0.051), bucket(0.1), bucket(1.0)
        ('5.26%', '5.26%', '10.5%', '100%')
    """
    steps = round(_STEPS_PER_OCTAVE * math.log2(max(density, 1e-9)))
    return f"{100 * 2 ** (steps / _STEPS_PER_OCTAVE):.3g}%"


def machine() -> str:
    """Everything outside a layer that decides its time."""
    kernels = f"{native.instruction_set()} kernels {_build()}" if native.available() else "no kernels"
    return f"{processor_name()}, {torch.get_num_threads()} threads, torch {torch.__version__}, {kernels}"


@functools.cache
def _build() -> str:
    path = native.library_path()
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12] if path else ""


class Timings:
    """The timings of one machine: read once, written back whole."""

    def __init__(self, path: Path | None = None) -> None:
        self.path, self.machine = path or _default_path(), machine()
        self._known = _read(self.path).get(self.machine, {})
        self._fresh: dict[str, Timing] = {}

    def get(self, key: str) -> Timing | None:
        """What is known of a key."""
        return self._fresh.get(key) or self._known.get(key)

    def put(self, key: str, timing: Timing) -> None:
        """Remember a measurement; :meth:`save` writes it."""
        self._fresh[key] = timing

    def save(self) -> None:
        """Write new measurements beside what other processes wrote meanwhile: the file is whole at any instant."""
        if not self._fresh:
            return
        everything = _read(self.path)
        everything[self.machine] = {**everything.get(self.machine, {}), **self._fresh}
        content = json.dumps({"format": FORMAT, "machines": everything}, indent=1, sort_keys=True)
        beside = self.path.with_name(f".{self.path.name}.{uuid4().hex}.tmp")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_text(content)
            os.replace(beside, self.path)
        except OSError as error:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
            message = f"timings were not kept: {error}; the next run measures again"
            warnings.warn(message, ExecutionWarning, stacklevel=2)
        self._known, self._fresh = everything[self.machine], {}


def _default_path() -> Path:
    return cache_root() / "timings.json"


def _read(path: Path) -> dict[str, dict[str, Timing]]:
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text())
        if content["format"] != FORMAT:
            return {}
        machines = content["machines"].items()
        return {name: {key: _timing(value) for key, value in known.items()} for name, known in machines}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        warnings.warn(f"{path} is damaged ({error!r}): measuring again", ExecutionWarning, stacklevel=2)
        return {}


def _timing(value: list[float]) -> Timing:
    ms, density = map(float, value)
    if not (0 <= ms < math.inf and 0 <= density <= 1):
        raise ValueError(f"{value} is no timing")
    return Timing(ms, density)
