"""Parameters that change their size."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def resize(parameter: nn.Parameter, values: Tensor) -> None:
    """Let a parameter hold other values, of any size; a backward pass through the old ones is refused from now on."""
    parameter.grad = None
    # Autograd remembers a parameter's size until its type changes.
    parameter.data = torch.empty(0, dtype=torch.float64 if values.dtype != torch.float64 else torch.float32)
    parameter.data = values
    torch.autograd.graph.increment_version(parameter)
