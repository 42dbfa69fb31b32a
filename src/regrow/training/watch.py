"""Guard: a loss that is not finite stops the run before any weight or mask changes, a collapsed network where asked; a note says why."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import torch
from torch import Tensor, nn

from regrow.errors import CollapseError, DivergenceError, NonFiniteError
from regrow.files import write_atomically
from regrow.training.folder import RunFolder
from regrow.training.forms import sealed


def refuse_non_finite(model: nn.Module, images: Tensor, step: int, loss: float) -> NoReturn:
    """Raise, naming the step and the first layer whose output is not finite."""
    if math.isfinite(loss):
        raise NonFiniteError(f"the loss of another process is not finite at step {step}: see its message")
    where = _first_bad_layer(model, images)
    raise NonFiniteError(
        f"the loss is {loss} at step {step}; {where}. Weights and masks are as after step {step}: lower the learning rate, clip "
        "gradients (optimizer.clip_norm), or look at the batch"
    )


def refuse_non_finite_scores(loss: float, step: int) -> None:
    """Raise where an evaluation's loss is not finite: the last step before it broke the weights."""
    if not math.isfinite(loss):
        raise NonFiniteError(
            f"the loss of the evaluation at step {step} is {loss}: the weights are broken. Lower the learning rate or clip gradients "
            "(optimizer.clip_norm)"
        )


def collapsed(validations: Sequence[float], patience: int, majority: float) -> bool:
    """Whether the last ``patience`` accuracies are hardly better than naming the most frequent class, which has the share ``majority``.

    Example:
        >>> collapsed([0.9, 0.1, 0.1], 2, majority=0.11), collapsed([0.1], 2, majority=0.11), collapsed([0.6, 0.6], 2, majority=0.5)
        (True, False, False)
    """
    hardly = majority * (1 + 0.1 * (1 - majority))
    return len(validations) >= patience and not any(share > hardly for share in validations[-patience:])


def refuse_collapse(step: int, accuracy: float, patience: int) -> NoReturn:
    """Raise, naming what was seen and how to go on regardless."""
    raise CollapseError(
        f"the network has collapsed: at step {step} its validation accuracy is {accuracy:.1%}, and {patience} validations in a row were no "
        "better than naming one class for all images. Lower the learning rate, or set patience = 0 to train on",
        patience,
    )


def note_divergence(folder: Path, identity: str, step: int, code: str, error: DivergenceError) -> None:
    """Leave word in a run's folder that it ended without a result, where and why."""
    patience = error.patience if isinstance(error, CollapseError) else 0
    note = {"identity": identity, "steps": step, "code": code, "message": str(error), "patience": patience}
    write_atomically(RunFolder(folder).diverged, sealed(note))


def _first_bad_layer(model: nn.Module, images: Tensor) -> str:
    if not bool(torch.isfinite(images).all()):
        return "the batch itself is not finite"
    found: list[str] = []

    def inspect(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: tuple, output: object) -> None:
            if not found and isinstance(output, Tensor) and not bool(torch.isfinite(output).all()):
                found.append(name)

        return hook

    leaves = [(name, module) for name, module in model.named_modules() if not list(module.children())]
    hooks = [module.register_forward_hook(inspect(name)) for name, module in leaves]
    try:
        with torch.no_grad():
            model(images)
    finally:
        for hook in hooks:
            hook.remove()
    return (
        f"the first layer with a non-finite output is {found[0]}"
        if found
        else "all layer outputs are finite, the loss itself is not"
    )
