"""Truly sparse execution on the CPU: native kernels, torch operators, layers that switch how they compute."""

from regrow.execution.kernels.pattern import Geometry, SparsePattern
from regrow.execution.modules.chwn import restore, use_chwn
from regrow.execution.modules.layers import Execution, attach, execution_of, unsupported
from regrow.native import NativeError, available, instruction_set

__all__ = [
    "Execution",
    "Geometry",
    "NativeError",
    "SparsePattern",
    "attach",
    "available",
    "execution_of",
    "instruction_set",
    "restore",
    "unsupported",
    "use_chwn",
]
