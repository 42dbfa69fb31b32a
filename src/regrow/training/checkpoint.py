"""Checkpoints: directories with safetensors, JSON and checksums; atomic, rotating, never a pickle.

    checkpoints/step-00000540/  tensors.safetensors  state.json  manifest.json

A checkpoint appears by one rename of a complete directory, so that killing the process at any instant leaves only whole ones.
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as parse_tensors
from safetensors.torch import save as serialise_tensors
from torch import Tensor

from regrow.errors import StateError
from regrow.training.files import checksum, sync_directory, write_through

_TENSOR = "$tensor"
_KEYED = "$keyed"
_UNFINISHED = ".unfinished-"


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.folder, self.keep = folder, keep

    def save(self, step: int, state: dict[str, Any]) -> Path:
        """Write the state of a step; older checkpoints beyond ``keep`` go."""
        self.folder.mkdir(parents=True, exist_ok=True)
        target = self.folder / f"step-{step:08d}"
        if target.exists():
            return target
        beside = self.folder / f"{_UNFINISHED}{step:08d}"
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir()
        _write(beside, state)
        os.rename(beside, target)
        sync_directory(self.folder)
        self._rotate()
        return target

    def latest(self) -> tuple[int, dict[str, Any]] | None:
        """The newest checkpoint that is whole; damaged ones are passed over with a warning."""
        for path in reversed(self.paths()):
            try:
                return int(path.name.removeprefix("step-")), read(path)
            except StateError as error:
                warnings.warn(f"{error}; trying the checkpoint before it", stacklevel=2)
        return None

    def paths(self) -> list[Path]:
        """Finished checkpoints, oldest first."""
        return sorted(self.folder.glob("step-*")) if self.folder.is_dir() else []

    def clean(self) -> None:
        """Remove what a killed process left unfinished."""
        if self.folder.is_dir():
            for path in self.folder.glob(f"{_UNFINISHED}*"):
                shutil.rmtree(path)

    def drop_after(self, step: int) -> None:
        """Remove (damaged) checkpoints newer than the one that a run resumes from."""
        for path in self.paths():
            if int(path.name.removeprefix("step-")) > step:
                shutil.rmtree(path)

    def _rotate(self) -> None:
        for path in self.paths()[: -self.keep]:
            # Renamed first: a checkpoint is whole or gone, also while its files are being deleted.
            doomed = self.folder / f"{_UNFINISHED}{path.name}"
            os.rename(path, doomed)
            shutil.rmtree(doomed)


def read(path: Path) -> dict[str, Any]:
    """Read one checkpoint, verified against its manifest."""
    try:
        manifest = json.loads((path / "manifest.json").read_bytes())
        contents = {name: (path / name).read_bytes() for name in manifest["sha256"]}
        for name, content in contents.items():
            if checksum(content) != manifest["sha256"][name]:
                raise StateError(f"checkpoint {path}: {name} is damaged (its SHA-256 is not the recorded one)")
        return join(json.loads(contents["state.json"]), parse_tensors(contents["tensors.safetensors"]))
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise StateError(f"checkpoint {path} cannot be read: {error}") from error


def split(state: Any) -> tuple[Any, dict[str, Tensor]]:
    """Split nested state into JSON and named tensors.

    Example:
        >>> plain, tensors = split({"w": torch.ones(2), "step": 3})
        >>> plain, list(tensors)
        ({'w': {'$tensor': 't0'}, 'step': 3}, ['t0'])
    """
    tensors: dict[str, Tensor] = {}

    def visit(node: Any) -> Any:
        if isinstance(node, Tensor):
            name = f"t{len(tensors)}"
            # Rows-first storage whatever the memory format, and no storage shared between tied tensors.
            tensors[name] = node.detach().cpu().clone(memory_format=torch.contiguous_format)
            return {_TENSOR: name}
        if isinstance(node, dict):
            if all(isinstance(key, str) for key in node):
                return {key: visit(value) for key, value in node.items()}
            return {_KEYED: [[key, visit(value)] for key, value in node.items()]}
        if isinstance(node, (list, tuple)):
            return [visit(value) for value in node]
        if node is None or isinstance(node, (bool, int, float, str)):
            return node
        raise StateError(f"a {type(node).__name__} cannot be stored in a checkpoint")

    return visit(state), tensors


def join(plain: Any, tensors: dict[str, Tensor]) -> Any:
    """The inverse of :func:`split`; tuples come back as lists."""
    if isinstance(plain, dict):
        if _TENSOR in plain:
            return tensors[plain[_TENSOR]]
        if _KEYED in plain:
            return {key: join(value, tensors) for key, value in plain[_KEYED]}
        return {key: join(value, tensors) for key, value in plain.items()}
    return [join(value, tensors) for value in plain] if isinstance(plain, list) else plain


def _write(folder: Path, state: dict[str, Any]) -> None:
    plain, tensors = split(state)
    contents = {"tensors.safetensors": serialise_tensors(tensors), "state.json": json.dumps(plain).encode()}
    for name, content in contents.items():
        write_through(folder / name, content)
    manifest = {"sha256": {name: checksum(content) for name, content in contents.items()}, "torch": torch.__version__}
    write_through(folder / "manifest.json", json.dumps(manifest, indent=1).encode())
    sync_directory(folder)
