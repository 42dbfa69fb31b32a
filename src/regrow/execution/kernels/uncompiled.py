"""What torch.compile leaves to eager execution. Importing this imports all of torch.compile: a second.

Kernels of compact storage have no operator that a compiled program could hold.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


@torch.compiler.disable
def eagerly(compute: Callable[..., Tensor], *arguments: Tensor | None) -> Tensor:
    """What a function computes, outside every compiled program."""
    return compute(*arguments)
