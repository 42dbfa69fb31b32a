"""How a model starts: from masks drawn at random, from its largest weights, or from the zeros it has.

Methods that rank positions freely take any start. Others have a rule of their own, which a start must not contradict.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from torch import Tensor, nn
from torch.optim import Optimizer

from regrow.arguments import STARTS
from regrow.errors import ConfigurationError, StartWarning, StateError, unknown
from regrow.freshness import signs_of_training
from regrow.guard import refuse_empty
from regrow.marks import count_of
from regrow.methods.method import Method
from regrow.scope import Layer
from regrow.settings import Settings
from regrow.topology.distribution import budget, hand_out
from regrow.topology.initial import Setup, by_magnitude, follows_rank
from regrow.topology.score import magnitude
from regrow.topology.select import largest
from regrow.vectors import changing

if TYPE_CHECKING:
    from regrow.network import SparseNetwork

Start = Literal["random", "magnitude", "zeros"]


def check_start(method: Method, start: str | None) -> None:
    """Refuse a start that is unknown, or contradicts the method's own rule for its first masks."""
    if start is None:
        return
    if start not in STARTS:
        raise unknown("start", start, STARTS)
    free = follows_rank(method.initial)
    own = method.calibration is not None or method.rounds is not None or method.fixed_counts is not None
    learned = method.weighting is not None and not free and method.initial is not by_magnitude
    takes = {
        "random": free,
        "magnitude": free or method.initial is by_magnitude,
        "zeros": not own and not learned,
    }
    if not takes[start]:
        raise _contradiction(method, start)


def _contradiction(method: Method, start: str) -> ConfigurationError:
    return ConfigurationError(
        f"start={start!r} contradicts method {method.name!r}, which has a rule of its own for its first masks "
        f"({method.summary}): leave start out, or take another method"
    )


def density_of_zeros(layers: Sequence[Layer]) -> float:
    """The share of weights that are not zero; an error where there is nothing to take masks from."""
    counts = [int(layer.band(layer.parameter.detach()).count_nonzero()) for layer in layers]
    sizes = [layer.shape.numel() for layer in layers]
    for layer, count in zip(layers, counts, strict=True):
        if count == 0:
            raise StateError(f"start='zeros': layer {layer.name} has no non-zero weight to take a mask from")
    if sum(counts) == sum(sizes):
        raise StateError(
            "start='zeros' finds no zeros: load the sparse weights into the model before sparsify, or say start='magnitude'"
        )
    return sum(counts) / sum(sizes)


def first_masks(setup: Setup, settings: Settings) -> tuple[list[Tensor], list[int]]:
    """The first masks and their budget, as ``start`` says or by the method's own rule."""
    if settings.start == "zeros":
        return _masks_of_zeros(setup, settings)
    if settings.start == "magnitude":
        setup = replace(setup, rank=magnitude)
    return settings.method.initial(setup), setup.counts


def _masks_of_zeros(setup: Setup, settings: Settings) -> tuple[list[Tensor], list[int]]:
    """Masks and budget from the zeros of the weights as they are.

    A budget that is held is filled up with zeros drawn at random, each layer in proportion to what it has: weights that training grew
    last are zero by chance. One that follows a schedule goes on from what is there; one that only bounds is not filled.
    """
    masks = [view.weight != 0 for view in setup.layers]
    found = [count_of(mask) for mask in masks]
    if settings.density_moves:
        if (least := budget(settings.density, [view.numel for view in setup.layers])) > sum(found):
            raise ConfigurationError(
                f"start='zeros' finds {sum(found):,} weights, fewer than the {least:,} with which method {settings.method.name!r} ends: "
                "lower the density"
            )
        return masks, found
    if sum(found) > setup.total:
        raise ConfigurationError(
            f"start='zeros' finds {sum(found):,} weights where density {settings.density:g} allows {setup.total:,}: leave density out "
            "to keep them all, or say start='magnitude' to keep the largest"
        )
    if settings.method.budget in ("upper bound", "free"):
        return masks, setup.counts
    sizes = [view.numel for view in setup.layers]
    counts = list(found)
    hand_out(counts, [n * setup.total / sum(found) for n in found], sizes, setup.total)
    drawn = [
        largest(view.random("fill"), count - n, ~mask)
        for view, mask, count, n in zip(setup.layers, masks, counts, found, strict=True)
    ]
    return [mask | more for mask, more in zip(masks, drawn, strict=True)], counts


def warn_of_trained(model: nn.Module, optimizer: Optimizer, layers: Sequence[Layer], settings: Settings) -> None:
    """Say that masks drawn at random are about to destroy weights that look trained; ``start="random"`` means it."""
    if settings.start is not None or settings.density == 1 or not follows_rank(settings.method.initial):
        return
    if (signs := signs_of_training(model, optimizer, layers)) is not None:
        warnings.warn(
            f"the weights look trained ({signs}), and sparsify sets {1 - settings.density_at(0.0):.0%} of them to zero at random: say "
            "start='magnitude' to keep the largest, start='zeros' to keep the masks of a sparse model, start='random' if it is meant",
            StartWarning,
            stacklevel=4,
        )


@changing()
def take_zeros(network: SparseNetwork) -> None:
    """Take masks and budget from the zeros of the weights as they are."""
    fresh = {sparse.name: sparse.nonzeros() for sparse in network.parameters}
    refuse_empty(network.layers, fresh)
    for sparse in network.parameters:
        sparse.adopt_weight()
    network.start_over(fresh)
    for sparse in network.parameters:
        sparse.mask_state()
