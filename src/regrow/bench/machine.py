"""What a machine can do at best."""

from __future__ import annotations

import torch

from regrow.bench.timing import medians


def peak_gflops(size: int = 1024, rounds: int = 5, clock: str = "wall") -> float:
    """Measured single-precision peak: the best dense matrix product, a practical stand-in for the FMA peak."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    return 2e-9 * size**3 / medians({"product": lambda: a @ b}, rounds, clock)["product"]
