"""What sparse weights save in FLOPs: a count on paper, not a time.

One sample's forward pass costs f = 2 * sum over layers of MACs * density. Training follows RigL's accounting (Evci et al. 2020): a step
is one forward and two backward products of the same size, of which the weight gradient alone may have to be dense. With f_S the
sparse and f_D the dense forward pass:

    dense                       3 f_D
    static, SET, SNIP           3 f_S
    SNFS                        2 f_S + f_D                                (dense weight gradient in every step)
    RigL, interval dT           (3 f_S dT + 2 f_S + f_D) / (dT + 1)
    growth window K of T steps  (3 f_S (T - K) + (2 f_S + f_D) K) / T
    gradual pruning             mean over steps of 3 f at the step's density
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regrow.models.cost import ModelCost


def kept_macs(cost: ModelCost, densities: Mapping[str, float]) -> dict[str, float]:
    """MACs of one sample that each convolution or linear layer keeps; layers that are not named are dense."""
    return {layer.name: (layer.macs or 0) * densities.get(layer.name, 1.0) for layer in cost.sparsifiable}


def mac_fraction(cost: ModelCost, densities: Mapping[str, float]) -> float:
    """Kept MACs over dense MACs of one forward pass, which is also f_S / f_D."""
    return cost.macs_at(densities) / cost.macs


def inference_flops(cost: ModelCost, densities: Mapping[str, float]) -> float:
    """FLOPs of one sample's forward pass: 2 x kept MACs."""
    return 2 * cost.macs_at(densities)


def dense_step(dense: float) -> float:
    """Training FLOPs of one sample in one step of a dense network."""
    return 3 * dense


def static_step(sparse: float) -> float:
    """The same for masks that need no gradient of missing weights: fixed ones, SET, SNIP after its first batch."""
    return 3 * sparse


def dense_gradient_step(sparse: float, dense: float) -> float:
    """A step in which the weight gradient is dense, forward and input gradient sparse: every step of SNFS.

    Example:
        >>> round(dense_gradient_step(0.2418, 1.0) / dense_step(1.0), 2)
        0.49
    """
    return 2 * sparse + dense


def windowed_step(sparse: float, dense: float, window: int, interval: int) -> float:
    """Mean over an interval of which the last ``window`` steps have dense weight gradients.

    Example:
        >>> windowed_step(0.1, 1.0, 0, 10) == static_step(0.1), windowed_step(0.1, 1.0, 10, 10) == dense_gradient_step(0.1, 1.0)
        (True, True)
    """
    if interval < 1 or not 0 <= window <= interval:
        raise ValueError(f"a window of {window} steps does not fit in an interval of {interval}")
    share = window / interval
    return static_step(sparse) * (1 - share) + dense_gradient_step(sparse, dense) * share


def rigl_step(sparse: float, dense: float, every: int) -> float:
    """RigL: one update with a dense weight gradient after every ``every`` sparse steps.

    Example:
        >>> round(rigl_step(0.4138, 1.0, 100) / dense_step(1.0), 2)
        0.42
    """
    return windowed_step(sparse, dense, 1, every + 1)


def gradual_step(forwards: Iterable[float]) -> float:
    """Gradual pruning: mean training FLOPs where ``forwards`` are the forward passes at the density of each step."""
    values = list(forwards)
    if not values:
        raise ValueError("the mean over no steps is not defined: give the forward FLOPs of at least one step")
    return 3 * sum(values) / len(values)
