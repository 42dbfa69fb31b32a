"""Randomness as a function of names and numbers, never of a global generator.

The same (seed, purpose, numbers) give the same draw on every rank, after every resume, on every device.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor


def generator(seed: int, *key: str | int) -> torch.Generator:
    """A CPU generator for one purpose.

    Example:
        >>> a = torch.rand(2, generator=generator(0, "grow", 3, 1))
        >>> bool((a == torch.rand(2, generator=generator(0, "grow", 3, 1))).all())
        True
    """
    return torch.Generator().manual_seed(seed_of(seed, *key))


def seed_of(seed: int, *key: str | int) -> int:
    """A 63-bit seed for one purpose."""
    digest = hashlib.blake2b(repr((seed, *key)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def uniform(like: Tensor, source: torch.Generator) -> Tensor:
    """Uniform float64 draws in the shape and on the device of ``like``; 53 bits make ties practically impossible."""
    return torch.rand(like.shape, generator=source, dtype=torch.float64, device="cpu").to(like.device)


def normal(like: Tensor, source: torch.Generator) -> Tensor:
    """Standard normal draws in the shape, dtype and device of ``like``."""
    return torch.randn(like.shape, generator=source, dtype=torch.float32, device="cpu").to(like)
