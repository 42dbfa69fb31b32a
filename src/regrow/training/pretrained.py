"""Weights to start from: those of another run, or of a safetensors file, shipped ones too."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from regrow.errors import ConfigurationError, StateError
from regrow.training.checkpoint import Checkpoints
from regrow.training.folder import RunFolder


@torch.no_grad()
def load_weights(network: nn.Module, source: str) -> None:
    """Fill a network with the weights of a run's newest checkpoint, or of a file; nothing is loaded in part."""
    path = Path(source)
    found = _of_run(path) if path.is_dir() else _of_file(path)
    own = network.state_dict()
    for name, tensor in own.items():
        if name not in found:
            raise StateError(f"{source} has no {name}: --weights must come from the same model")
        if found[name].shape != tensor.shape:
            raise StateError(
                f"{source} has {name} of shape {tuple(found[name].shape)}, the model {tuple(tensor.shape)}: --weights must come from "
                "the same model with as many classes"
            )
    if foreign := sorted(set(found) - set(own)):
        raise StateError(f"{source} has {foreign[0]}, which the model has not: --weights must come from the same model")
    network.load_state_dict(dict(found))


def _of_run(folder: Path) -> Mapping[str, Tensor]:
    newest = Checkpoints(RunFolder(folder).checkpoints).latest()
    if newest is None:
        raise StateError(
            f"{folder} has no checkpoint to take weights from: name the folder of a run, or a .safetensors file"
        )
    return newest.weights


def _of_file(path: Path) -> Mapping[str, Tensor]:
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import load_file

    from regrow.shipping import file

    if path.suffix != ".safetensors" or not path.is_file():
        raise ConfigurationError(f"--weights {path}: no such run or .safetensors file (pickled weights are not read)")
    try:
        with safe_open(path, "pt") as opened:
            shipped = (opened.metadata() or {}).get("format") == file.FORMAT
        return file.read(path).state_dict()[0] if shipped else load_file(path)
    except (SafetensorError, OSError) as error:
        raise StateError(f"{path} cannot be read as safetensors ({error}): take a whole file") from error
