"""Hugging Face's Trainer: masks kept in its checkpoints, and back when it resumes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from regrow.errors import MissingPackageError, StateError

try:
    from transformers import TrainerCallback
except ImportError as error:  # pragma: no cover
    raise MissingPackageError(
        "regrow.integrations.transformers needs the package transformers: pip install transformers"
    ) from error

if TYPE_CHECKING:
    from regrow.handle import Handle

FILE = "regrow.pt"


class KeepMasks(TrainerCallback):
    """Saves the handle's state in every checkpoint of a Trainer, and loads it when training resumes from one.

    The Trainer loads weights and optimizer itself, after ``sparsify``: ``Trainer(..., optimizers=(optimizer, None),
    callbacks=[KeepMasks(handle)])``, then ``trainer.train(resume_from_checkpoint=True)`` goes on with the same bits.

    Args:
        handle: what ``regrow.sparsify(model, optimizer, ...)`` returned.
    """

    def __init__(self, handle: Handle) -> None:
        self.handle = handle

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Put masks, counters and evidence beside the weights."""
        if state.is_world_process_zero:
            torch.save(self.handle.state_dict(), _file(args, state))

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Take them back, when the Trainer has loaded the rest."""
        if state.global_step == 0:
            return
        file = _file(args, state)
        if not file.is_file():
            raise StateError(
                f"{file} is missing: the checkpoint was written without KeepMasks, or lies elsewhere. Resume from checkpoints in "
                "output_dir; without that file, start anew from the weights, with start='zeros'"
            )
        self.handle.load_state_dict(torch.load(file, weights_only=True))


def _file(args: Any, state: Any) -> Path:
    return Path(args.output_dir) / f"checkpoint-{state.global_step}" / FILE
