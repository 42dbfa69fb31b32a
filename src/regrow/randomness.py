"""Randomness as a function of names and numbers, never of a global generator.

The same (seed, purpose, numbers) give the same draw on every rank, after every resume, on every device.
"""

from __future__ import annotations

import hashlib

import numpy as np
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


def coins(positions: Tensor, seed: int) -> Tensor:
    """-1 or 1 for each position, a function of it and the seed: no draw depends on how many others are drawn.

    Example:
        >>> torch.equal(coins(torch.arange(100), 7)[40:50], coins(torch.arange(40, 50), 7))
        True
    """
    mixed = positions.numpy().astype(np.uint64) + np.full(1, seed, dtype=np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # the finaliser of SplitMix64
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return torch.from_numpy(((mixed >> np.uint64(62)) & np.uint64(2)).astype(np.int8) - np.int8(1))
