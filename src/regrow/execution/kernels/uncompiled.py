"""What torch.compile leaves to eager execution. Importing this imports all of torch.compile: a second.

Kernels of compact storage have no operator that a compiled program could hold.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regrow.execution.kernels.compact import CompactFunction, Witness
from regrow.execution.kernels.pattern import SparsePattern


@torch.compiler.disable
def compact_product(
    x: Tensor, values: Tensor, bias: Tensor | None, pattern: SparsePattern, witness: Witness | None
) -> Tensor:
    """A layer in compact storage, outside every compiled program."""
    return CompactFunction.apply(x, values, bias, pattern, witness)
