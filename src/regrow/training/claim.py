"""A run's folder belongs to one configuration: that of its checkpoints, which damage cannot change unnoticed."""

from __future__ import annotations

import warnings
from pathlib import Path

from regrow.config import Config, differences, load_stored, to_toml
from regrow.errors import CheckpointWarning, ConfigurationError, StateError
from regrow.training.checkpoint import Checkpoints
from regrow.training.folder import RunFolder


def refuse_others(folder: Path, config: Config, checkpoints: Checkpoints) -> None:
    """Refuse a folder that holds a run with another configuration, or a ``config.toml`` that no run wrote.

    A damaged ``config.toml`` beside checkpoints of this very configuration is written anew: a run is what its checkpoints say.
    """
    path = RunFolder(folder).config
    if not path.is_file():
        return
    found, problem = _read(path)
    if not checkpoints.paths():
        if found is None or path.read_text() != to_toml(found):
            raise StateError(
                f"{path} is a file of your own, which the run would replace: choose another folder with --out"
            )
        return
    if found is not None and found.identity() == config.identity():
        return
    difference = problem if found is None else differences(found, config)
    newest = checkpoints.latest()
    if newest is None or newest[1].get("identity") != config.identity():
        raise other_configuration(folder, f" ({difference})")
    warnings.warn(
        f"{path} is not that of the checkpoints ({difference}): written anew", CheckpointWarning, stacklevel=3
    )


def other_configuration(folder: Path, difference: str = "") -> StateError:
    """What to say of a folder with another run in it."""
    return StateError(
        f"{folder} holds a run with another configuration{difference}: choose another folder with --out (and --weights {folder} --start "
        "zeros to go on from its weights), or delete it"
    )


def _read(path: Path) -> tuple[Config | None, str]:
    try:
        return load_stored(path), ""
    except ConfigurationError as error:
        return None, str(error)
