"""A checkpoint's state into the parts of a run; what does not fit is refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regrow.errors import RegrowError, StateError
from regrow.topology.journal import Record
from regrow.training.processes import Processes
from regrow.training.setup import Parts
from regrow.training.tally import Tally


@contextmanager
def refusing(folder: Path) -> Iterator[None]:
    """Whatever a checkpoint of a wrong form leads to is one error that names the run."""
    try:
        yield
    except RegrowError:
        raise
    except (KeyError, IndexError, TypeError, AttributeError, ValueError, RuntimeError) as error:
        raise StateError(
            f"the newest checkpoint in {folder} does not fit this run ({type(error).__name__}: {error}): put a good copy there, "
            "or delete the folder to start anew"
        ) from error


def load(parts: Parts, state: dict[str, Any], journal: Sequence[Record], processes: Processes) -> Tally:
    """Weights, optimizer and masks as they were saved; returns what was counted since the last row."""
    if parts.handle.settings.storage == "dense":  # else checked with the masks, which tell how many there are
        _check_shapes(parts.optimizer, state["optimizer"])
    parts.network.load_state_dict(state["model"])
    groups = parts.optimizer.state_dict()["param_groups"]
    parts.optimizer.load_state_dict({"state": state["optimizer"], "param_groups": groups})
    sparse = state["sparse"]
    if sparse["journal"] is None:  # else of a release that kept it in checkpoints
        sparse = {**sparse, "journal": [record.as_dict() for record in journal]}
    parts.handle.load_state_dict(sparse)
    return _tally(state["tallies"], processes)


def _tally(tallies: list[list[float]], processes: Processes) -> Tally:
    if len(tallies) != processes.world:
        nothing = [[0.0] * 3] * (processes.world - 1)
        tallies = [[sum(column) for column in zip(*tallies, strict=True)], *nothing]
    loss, hits, samples = tallies[processes.rank]
    return Tally(loss, int(hits), int(samples))


def _check_shapes(optimizer: torch.optim.Optimizer, state: dict[int, dict[str, Any]]) -> None:
    """torch takes optimizer state of any shape; steps would read and write outside of it."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for index, slots in state.items():
        for name, value in slots.items():
            if isinstance(value, Tensor) and value.ndim and value.shape != parameters[index].shape:
                raise ValueError(f"{name} of parameter {index} has shape {tuple(value.shape)}")
