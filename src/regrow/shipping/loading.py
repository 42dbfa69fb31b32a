"""`save` a trained sparse network to a file, `load` it for inference or as an ordinary model."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from regrow.errors import ConfigurationError
from regrow.scope import unwrap
from regrow.shipping import architecture as architectures
from regrow.shipping import file
from regrow.shipping.freeze import freeze_in_place
from regrow.shipping.graph import plain_copy

if TYPE_CHECKING:
    from regrow.handle import Handle


def save(
    path: str | Path,
    model: nn.Module | Handle,
    masks: Mapping[str, Tensor] | None = None,
    *,
    architecture: str | type[nn.Module] | None = None,
    options: Mapping[str, Any] | None = None,
    values: str = "float32",
    about: Mapping[str, Any] | None = None,
) -> int:
    """Write a sparse file; returns its size in bytes.

    Args:
        path: where to.
        model: the trained network, or its handle.
        masks: of its sparse weights by parameter name; a handle brings its own.
        architecture: how to build it again: a name of regrow's registry, `timm:NAME`, or its class; None: whoever loads it passes it.
        options: of that name, or keyword arguments of that class; plain values. What does not build this network is refused.
        values: `float32`, `bfloat16` or `float16`, for matrices.
        about: more facts, plain values; `input_shape` (one sample) lets more be folded when the file is loaded.
    """
    if not isinstance(model, nn.Module):
        masks = {sparse.name: sparse.mask for sparse in model.parameters} if masks is None else masks
        model = model.model
    if masks is None:
        raise ConfigurationError(
            "save needs the masks of the model's sparse weights, or its handle in place of the model"
        )
    state = unwrap(model).state_dict()
    entry = None if architecture is None else architectures.entry_of(architecture, options or {}, state)
    return file.write(Path(path), file.store(state, masks, entry, about, values))


def load(
    path: str | Path, dense: bool = False, *, model: nn.Module | None = None, allow: str | Collection[str] = ()
) -> nn.Module:
    """The network of a sparse file: for inference on sparse kernels, or (``dense``) as the ordinary model it was.

    Args:
        path: of the file.
        dense: give the architecture itself with ordinary weights, zero where none is present.
        model: a network of the file's architecture, in place of what the file names; it is copied.
        allow: import paths of classes (`"package.module:Class"`) that a file may name; nothing else is imported on a file's behalf.

    Raises:
        StateError: the file is damaged, inconsistent, or of another network; nothing of it was used.
        ConfigurationError: the file names a class that is not allowed, or cannot be imported; or ``model`` is no network.
    """
    if model is not None and not isinstance(model, nn.Module):
        given = "the class, not a network of it" if isinstance(model, type) else type(model).__name__
        raise ConfigurationError(f"model must be a network, got {given}")
    allow = (allow,) if isinstance(allow, str) else allow
    stored = file.read(Path(path))
    network = architectures.build(stored.architecture, allow) if model is None else plain_copy(model)
    state, masks = stored.state_dict()
    network = architectures.fill(network, state)
    return network if dense else freeze_in_place(network, masks, _example(stored), check=model is not None)


def _example(stored: file.Stored) -> Tensor | None:
    """Zeros of the shape that the file states for one input, if it does."""
    shape = stored.about.get("input_shape")
    if (
        not isinstance(shape, list)
        or not 0 < len(shape) <= 4
        or not all(type(n) is int and 0 < n <= 4096 for n in shape)
    ):
        return None
    return torch.zeros(1, *shape)
