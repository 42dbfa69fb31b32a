"""A run's newest checkpoint as a file: sparse safetensors, ONNX, or a torch.export program, by the ending of its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regrow.config import Config
from regrow.data import Dataset
from regrow.errors import ConfigurationError, StateError, unknown
from regrow.shipping import formats
from regrow.shipping.freeze import Frozen, freeze
from regrow.shipping.loading import save
from regrow.training.setup import load_split, model_options
from regrow.training.stored import load_model, read_config


@dataclass(frozen=True)
class Trained:
    """A trained network with what is needed to ship it."""

    network: nn.Module
    masks: dict[str, Tensor]
    config: Config
    options: dict[str, Any]
    step: int
    shape: tuple[int, ...]

    def example(self) -> Tensor:
        """One input: random, so that a comparison of answers sees something."""
        return torch.randn(1, *self.shape, generator=torch.Generator().manual_seed(0))

    def frozen(self) -> Frozen:
        """For inference."""
        return freeze(self.network, self.masks, self.example())


@dataclass(frozen=True)
class Wish:
    """How to write: type of values, dense or sparse weights."""

    values: str = "float32"
    dense: bool = False
    sparse_initialisers: bool = False


def read_run(folder: Path) -> Trained:
    """The newest checkpoint of a run."""
    config = read_config(folder)
    form: Dataset = load_split(config, config.data.test_split)
    stored = load_model(folder, form)
    network, masks = stored.network, stored.masks
    if stored.unfinished:
        raise StateError(
            f"weights of {folder} lie outside its masks: its method {config.sparse.method!r} trains more than them and must be ended "
            "first (handle.finish())"
        )
    return Trained(network.eval(), masks, config, model_options(config, form), stored.step, tuple(form.shape))


def export_run(folder: Path, path: Path, wish: Wish) -> tuple[int, Frozen]:
    """Write a run to a file; returns its size and the frozen network."""
    if path.suffix not in WRITERS:
        raise unknown("file format", path.suffix, WRITERS)
    if wish.sparse_initialisers and path.suffix != ".onnx":
        raise ConfigurationError(
            "sparse initialisers belong to ONNX: leave the option out, or write to a name with .onnx"
        )
    if wish.values != "float32" and path.suffix != ".safetensors":
        raise ConfigurationError(
            f"--values {wish.values} belongs to .safetensors files: {path.suffix} files hold float32"
        )
    trained = read_run(folder)
    frozen = trained.frozen()
    path.parent.mkdir(parents=True, exist_ok=True)
    WRITERS[path.suffix](path, trained, frozen, wish)
    return path.stat().st_size, frozen


def _safetensors(path: Path, trained: Trained, frozen: Frozen, wish: Wish) -> None:
    masks = {} if wish.dense else trained.masks
    config = trained.config
    data = config.data
    about = {
        "input_shape": list(trained.shape),
        "method": config.sparse.method,
        "step": trained.step,
        "data": {"name": data.name, "mean": list(data.mean), "std": list(data.std), "image_size": data.image_size},
    }
    given = {"architecture": config.model, "options": trained.options, "values": wish.values, "about": about}
    save(path, trained.network, masks, **given)  # type: ignore[arg-type]


def _onnx(path: Path, trained: Trained, frozen: Frozen, wish: Wish) -> None:
    formats.write_onnx(path, frozen, trained.example(), wish.sparse_initialisers)


def _program(path: Path, trained: Trained, frozen: Frozen, wish: Wish) -> None:
    formats.write_program(path, frozen, trained.example(), wish.dense)


WRITERS: dict[str, Callable[[Path, Trained, Frozen, Wish], None]] = {
    ".safetensors": _safetensors,
    ".onnx": _onnx,
    ".pt2": _program,
}
"""By the ending of the file's name."""
