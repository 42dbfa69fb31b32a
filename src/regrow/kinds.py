"""Kinds of plain values in files that may be damaged, or come from anybody."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

Test = Callable[[Any], bool]


def is_number(value: Any) -> bool:
    """A finite number that fits into a float.

    Example:
        >>> is_number(0.5), is_number(True), is_number(float("nan")), is_number(10**400), is_number("1")
        (True, False, False, False, False)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def is_count(value: Any) -> bool:
    """A whole number from 0 that fits into 64 bits."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def or_none(test: Test) -> Test:
    """As the test, or None."""
    return lambda value: value is None or test(value)
