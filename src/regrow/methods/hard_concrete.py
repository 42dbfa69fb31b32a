"""The hard-concrete distribution: a stretched and clipped sigmoid, with point masses at 0 and 1."""

from __future__ import annotations

import math

from torch import Tensor

_BETA, _GAMMA, _ZETA = 2 / 3, -0.1, 1.1
CLOSED = math.log(-_GAMMA / _ZETA)
"""Up to this log_alpha the gate of evaluation is 0."""


def gate(log_alpha: Tensor, u: Tensor) -> Tensor:
    """z for uniform draws u."""
    s = ((u.log() - (1 - u).log() + log_alpha) / _BETA).sigmoid()
    return (s * (_ZETA - _GAMMA) + _GAMMA).clamp(0, 1)


def rest_gate(log_alpha: Tensor) -> Tensor:
    """z in evaluation."""
    return (log_alpha.sigmoid() * (_ZETA - _GAMMA) + _GAMMA).clamp(0, 1)


def open_probability(log_alpha: Tensor) -> Tensor:
    """P(z != 0)."""
    return (log_alpha - _BETA * CLOSED).sigmoid()
