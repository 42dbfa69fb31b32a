"""Random numbers without a generator: every draw is a hash of what it is for.

A draw depends on its keys alone (seed, purpose, epoch, sample, ...), so that any batch can be produced directly, in any
process, in any order. Keys are absorbed one by one with the finaliser of SplitMix64 (Steele, Lea & Flood, 2014), an
arithmetic that is the same on every machine and in every version of every library.
"""

from __future__ import annotations

import numpy as np

Key = int | np.ndarray
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MASK = (1 << 64) - 1

# What a draw is for; part of its keys, so that purposes never share numbers.
ORDER, CROP_FLIP, RESIZED_CROP = 1, 2, 3


def hash64(*keys: Key) -> np.ndarray:
    """64 random bits for each combination of keys; arrays broadcast, the result has at least one dimension.

    >>> int(hash64(1, 2)[0]) == int(hash64(1, np.array([7, 2]))[1])
    True
    """
    state = np.zeros(1, np.uint64)
    for key in keys:
        state = _mix(state + _as_uint64(key) + _GOLDEN)
    return state


def uniform(*keys: Key) -> np.ndarray:
    """Numbers in [0, 1) with 53 random bits."""
    return (hash64(*keys) >> np.uint64(11)) * 2.0**-53


def integers(high: int, *keys: Key) -> np.ndarray:
    """Integers in [0, high), for `high` below 2**31 (the bias is below high / 2**32)."""
    return (((hash64(*keys) >> np.uint64(32)) * np.uint64(high)) >> np.uint64(32)).astype(np.int64)


def permutation(length: int, *keys: Key) -> np.ndarray:
    """A random order of 0 .. length - 1: the numbers sorted by their hashes."""
    # The low bits of each hash give way to the number itself: no ties, so every sorting algorithm agrees, and a plain
    # sort is several times faster than argsort.
    low = np.uint64((1 << length.bit_length()) - 1)
    numbers = np.arange(length)
    tagged = np.sort((hash64(*keys, numbers) & ~low) | numbers.astype(np.uint64))
    return (tagged & low).astype(np.int64)


def _as_uint64(key: Key) -> np.ndarray:
    if isinstance(key, np.ndarray):
        return key.astype(np.uint64)
    return np.array([int(key) & _MASK], np.uint64)


def _mix(state: np.ndarray) -> np.ndarray:
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))
