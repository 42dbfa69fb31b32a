"""What a machine can do at best."""

from __future__ import annotations

import ctypes

import torch

from regrow import native


def fma_peak(tries: int = 30, rounds: int = 1 << 20) -> float:
    """Measured single-precision peak in GFLOP/s: multiply-adds on registers only, on torch's number of threads.

    The loop uses the vectors of the kernels in use. A peak is the best of ``tries``, not a median: whatever disturbs a try makes
    it slower.
    """
    function = native.library().regrow_fma_peak
    function.restype, function.argtypes = ctypes.c_double, [ctypes.c_int64, ctypes.c_int]
    return max(function(rounds, torch.get_num_threads()) for _ in range(tries))
