"""Checkpoints: directories with safetensors, JSON and checksums; atomic, rotating, never a pickle.

    checkpoints/step-00000540/  tensors.safetensors  state.json  manifest.json

A checkpoint appears by one rename of a complete directory, so that killing the process at any instant leaves only whole ones.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load as parse_tensors
from safetensors.torch import save as serialise_tensors
from torch import Tensor

from regrow.errors import CheckpointWarning, StateError
from regrow.execution.modules.compact import dense_form
from regrow.files import checksum, remove, sync_directory, write_through
from regrow.marks import Marks
from regrow.topology.journal import decoded

_TENSOR = "$tensor"
_KEYED = "$keyed"
_FORMAT = "$format"
_FORMATS = {"channels_last": torch.channels_last, "channels_last_3d": torch.channels_last_3d}
_UNFINISHED = ".unfinished-"
_MANIFEST = "manifest.json"
_FILES = _TENSORS, _STATE = "tensors.safetensors", "state.json"
_DAMAGE = (
    FileNotFoundError, NotADirectoryError, KeyError, ValueError, TypeError, AttributeError, RecursionError, SafetensorError,
)  # fmt: skip


class Saved(NamedTuple):
    """The state of a run at a step."""

    step: int
    state: dict[str, Any]

    @property
    def weights(self) -> dict[str, Tensor]:
        """The network's state: what its ``load_state_dict`` takes."""
        return dense_form(self.state["model"])

    @property
    def masks(self) -> dict[str, Tensor]:
        """The mask of each sparse parameter, by its name."""
        sparse = self.state["sparse"]
        storage, shapes = sparse.get("storage", "dense"), sparse["shapes"]
        found = {name: decoded(code, torch.Size(shapes[name]), storage) for name, code in sparse["masks"].items()}
        return {name: mask.dense() if isinstance(mask, Marks) else mask for name, mask in found.items()}


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.folder, self.keep = folder, keep

    def save(self, step: int, state: dict[str, Any]) -> Path:
        """Write the state of a step; older checkpoints beyond ``keep`` go."""
        target = self.folder / f"step-{step:08d}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            # A run killed right after this very save, before older checkpoints went, comes by here again.
            if not target.exists():
                self._publish(target, state)
            self._rotate()
        except OSError as error:
            # The user knows the checkpoint, not what stands beside it.
            known = _place(target, error.filename)
            raise OSError(error.errno, f"cannot be written ({error.strerror})", str(known)) from error
        return target

    def _publish(self, target: Path, state: dict[str, Any]) -> None:
        beside = self.folder / f"{_UNFINISHED}{target.name.removeprefix('step-')}"
        remove(beside)
        beside.mkdir()
        try:
            _write(beside, state)
            os.rename(beside, target)
        except BaseException:
            with suppress(OSError):
                remove(beside)
            raise
        sync_directory(self.folder)

    def latest(self) -> Saved | None:
        """The newest checkpoint that is whole; damaged ones are passed over with a warning.

        Where there are checkpoints but none is whole, that is an error: starting anew in silence would throw the run away. One that may
        be whole, but cannot be opened or was renamed, is an error too: nobody but its owner knows what to do with it.
        """
        paths = self.paths()
        for path in reversed(paths):
            try:
                return Saved(step_of(path), read(path))
            except DamageError as error:
                warnings.warn(f"{error}; trying the checkpoint before it", CheckpointWarning, stacklevel=2)
        if paths:
            raise StateError(
                f"no checkpoint in {self.folder} is whole: put a good copy there, or delete that folder to start anew"
            )
        return None

    def paths(self) -> list[Path]:
        """Finished checkpoints, oldest first; what has another name is not ours."""
        return sorted(filter(_is_checkpoint, self.folder.glob("step-*")), key=step_of) if self.folder.is_dir() else []

    def clean(self) -> None:
        """Remove what a killed process left unfinished; only where the folder is the run's own."""
        if self.folder.is_symlink():
            raise StateError(
                f"{self.folder} is a link, and a run removes files in its checkpoints: put the whole folder of the run where you want it "
                "(--out), and a folder in place of the link"
            )
        if self.folder.is_dir():
            for path in self.folder.glob(f"{_UNFINISHED}*"):
                remove(path)

    def drop_after(self, step: int) -> None:
        """Remove (damaged) checkpoints newer than the one that a run resumes from."""
        for path in self.paths():
            if step_of(path) > step:
                self._remove(path)

    def _rotate(self) -> None:
        for path in self.paths()[: -self.keep]:
            self._remove(path)

    def _remove(self, path: Path) -> None:
        # Renamed first: a checkpoint is whole or gone, also while its files are being deleted.
        doomed = self.folder / f"{_UNFINISHED}{path.name}"
        remove(doomed)
        os.rename(path, doomed)
        remove(doomed)


class DamageError(StateError):
    """A checkpoint that is not whole."""


def read(path: Path) -> dict[str, Any]:
    """Read one checkpoint, verified against its manifest and against its folder's name."""
    try:
        manifest = json.loads(_content(path, _MANIFEST))
        contents = {name: _content(path, name) for name in _FILES}
        for name, content in contents.items():
            if checksum(content) != manifest["sha256"][name]:
                raise DamageError(f"checkpoint {path}: {name} is damaged (its SHA-256 is not the recorded one)")
        state = join(json.loads(contents[_STATE]), parse_tensors(contents[_TENSORS]))
        step = state.get("step")
    except _DAMAGE as error:
        raise DamageError(f"checkpoint {path} cannot be read: {error}") from error
    except OSError as error:
        raise StateError(
            f"checkpoint {path} cannot be opened ({error.strerror}): make its files readable, or move it away"
        ) from error
    if step is not None and _is_checkpoint(path) and step != step_of(path):
        raise StateError(
            f"checkpoint {path} holds step {step}: give its folder the name step-{step:08d} again, or move it away"
        )
    return state


def _content(folder: Path, name: str) -> bytes:
    path = folder / name
    if not stat.S_ISREG(path.stat().st_mode):  # a pipe would never end
        raise FileNotFoundError(f"{name} is no file")
    return path.read_bytes()


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
            # No storage shared between tied tensors; rows first, as the file format wants them.
            tensors[name] = node.detach().cpu().clone(memory_format=torch.contiguous_format)
            layout = next((key for key, form in _FORMATS.items() if _lies_in(node, form)), None)
            return {_TENSOR: name} if layout is None else {_TENSOR: name, _FORMAT: layout}
        if isinstance(node, dict):
            if all(isinstance(key, str) and not key.startswith("$") for key in node):
                return {key: visit(value) for key, value in node.items()}
            return {_KEYED: [[_plain_key(key), visit(value)] for key, value in node.items()]}
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
            tensor = tensors[plain[_TENSOR]]
            # Fused optimizers walk weights and their state side by side in memory: the order must come back too.
            return tensor.contiguous(memory_format=_FORMATS[plain[_FORMAT]]) if _FORMAT in plain else tensor
        if _KEYED in plain:
            return {key: join(value, tensors) for key, value in plain[_KEYED]}
        return {key: join(value, tensors) for key, value in plain.items()}
    return [join(value, tensors) for value in plain] if isinstance(plain, list) else plain


def _lies_in(tensor: Tensor, memory_format: torch.memory_format) -> bool:
    dimensions = 5 if memory_format is torch.channels_last_3d else 4
    return (
        tensor.ndim == dimensions and not tensor.is_contiguous() and tensor.is_contiguous(memory_format=memory_format)
    )


def _plain_key(key: Any) -> str | int | float | bool | None:
    if key is None or isinstance(key, (str, int, float)):
        return key
    raise StateError(f"a {type(key).__name__} cannot be a key in a checkpoint")


def _is_checkpoint(path: Path) -> bool:
    return re.fullmatch(r"step-[0-9]+", path.name) is not None


def is_one(path: Path) -> bool:
    """Whether a folder is itself a checkpoint."""
    return (path / _MANIFEST).is_file()


def step_of(path: Path) -> int:
    """The step of a checkpoint, from the name of its folder."""
    return int(path.name.removeprefix("step-"))


def _write(folder: Path, state: dict[str, Any]) -> None:
    plain, tensors = split(state)
    contents = {_TENSORS: _serialised(tensors), _STATE: json.dumps(plain).encode()}
    for name, content in contents.items():
        write_through(folder / name, content)
    manifest = {"sha256": {name: checksum(content) for name, content in contents.items()}, "torch": torch.__version__}
    write_through(folder / _MANIFEST, json.dumps(manifest, indent=1).encode())
    sync_directory(folder)


def _place(target: Path, written: str | None) -> Path:
    """Where a file that could not be written would have come to stand; the checkpoint itself where that is no file of it."""
    name = Path(written or "").name
    return target / name if name in (*_FILES, _MANIFEST) else target


def _serialised(tensors: dict[str, Tensor]) -> bytes:
    try:
        return serialise_tensors(tensors)
    except BaseException as error:
        # Without memory the library panics, which is no Exception.
        if isinstance(error, MemoryError) or type(error).__name__ == "PanicException":
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)) from error
        raise
