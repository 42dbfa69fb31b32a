"""Truly sparse execution on the CPU: native kernels, torch operators, layers that switch how they compute."""

from regrow.execution.layers import Execution, attach, execution_of, unsupported
from regrow.execution.native import NativeError, available, instruction_set
from regrow.execution.pattern import SparsePattern, Window
from regrow.execution.travel import settle, travel

__all__ = [
    "Execution",
    "NativeError",
    "SparsePattern",
    "Window",
    "attach",
    "available",
    "execution_of",
    "instruction_set",
    "settle",
    "travel",
    "unsupported",
]
