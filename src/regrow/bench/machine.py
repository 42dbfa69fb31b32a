"""What a figure was measured on."""

from __future__ import annotations

import platform
from pathlib import Path

import torch

from regrow.bench.timing import medians
from regrow.execution import instruction_set


def describe() -> dict[str, object]:
    """CPU, threads, versions and instruction set, to be stored with every result."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        cpu = next(
            (line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")),
            cpu,
        )
    return {
        "cpu": cpu,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "instruction_set": instruction_set(),
    }


def peak_gflops(size: int = 1024, rounds: int = 5, clock: str = "wall") -> float:
    """Measured single-precision peak: the best dense matrix product, a practical stand-in for the FMA peak."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    return 2e-9 * size**3 / medians({"product": lambda: a @ b}, rounds, clock)["product"]
