"""What a machine can do at best."""

from __future__ import annotations

import ctypes

import torch

from regrow import native

PLACES = {"registers": 0, "16 KB": 16 << 10, "256 KB": 256 << 10, "4 MB": 4 << 20, "64 MB": 64 << 20}
"""Where one operand of each multiply-add lies: what fits the first and second cache of a core, a share of the last, and none."""


def fma_peak(tries: int = 30, rounds: int = 1 << 20, size: int = 0) -> float:
    """Measured single-precision peak in GFLOP/s, on torch's number of threads.

    Multiply-adds on registers only, or with one operand from ``size`` bytes of each thread's own. The loop uses the vectors of the
    kernels in use. A peak is the best of ``tries``, not a median: whatever disturbs a try makes it slower.
    """
    function = native.library().regrow_fma_peak
    function.restype, function.argtypes = ctypes.c_double, [ctypes.c_int64, ctypes.c_int, ctypes.c_int64]
    return max(function(rounds, torch.get_num_threads(), size) for _ in range(tries))


def ceilings(tries: int = 30) -> dict[str, float]:
    """The peak by the place of one operand: a sparse kernel reads a vector for each multiply-add, so no layer exceeds that of its input."""
    return {place: fma_peak(tries, size=size) for place, size in PLACES.items()}
