"""GraNet: gradual pruning with zero-cost regeneration."""

from __future__ import annotations

from dataclasses import replace

from regrow.methods import options
from regrow.methods.method import Method
from regrow.topology import score
from regrow.topology.cycle import Change, rewire
from regrow.topology.distribution import reachable
from regrow.topology.grow import Grow
from regrow.topology.prune import Prune, floor_fraction, globally_smallest
from regrow.topology.schedule import When, cosine, cubic
from regrow.topology.view import Update, needs


def method(start_density: float = 0.5, prune_rate: float = 0.5, begin: float = 0.0, end: float = 0.6875) -> Method:
    r"""Gradual pruning with neuroregeneration (Liu et al. 2021).

    At every update:

        1. keep the d_t n largest |w| of the whole network,  d_t = d_f + (d_i - d_f)(1 - (t - t_0)/(t_f - t_0))^3
        2. per layer drop the floor(p(t) nnz_l) smallest |w| and grow as many by |g|,  p(t) cosine

    Args:
        start_density: d_i; 1 is dense-to-sparse, 0.5 (ERK) sparse-to-sparse.
        prune_rate: p at the start.
        begin, end: t_0 and t_f as shares of the run.
    """
    options.within("prune_rate", prune_rate, 0, 1, open_high=True)
    options.within("start_density", start_density, 0, 1, open_low=True)
    options.ordered("begin", begin, "end", end)
    return Method(
        name="granet",
        paper="Liu et al.",
        year=2021,
        summary="global gradual pruning, then per-layer regeneration by gradient",
        distribution="erk",
        rewire=_prune_then_regenerate,
        when=When(1000),
        rate=cosine(prune_rate),
        density=lambda target: cubic(max(start_density, target), target, begin, end),
        budget="schedule",
        extra_memory="1 dense gradient per layer in update steps",
    )


@score.by_bands
@needs("gradient")
def _prune_then_regenerate(update: Update) -> Change:
    layers, scores = update.layers, [score.magnitude(layer) for layer in update.layers]
    # Where layers are frozen, the others may already hold fewer weights than their own targets add up to.
    update.targets = reachable(update.targets or [], [layer.nnz for layer in layers])
    cut = globally_smallest(layers, scores, sum(layer.nnz for layer in layers) - sum(update.targets))
    thinner = [replace(layer, mask=layer.mask & ~gone) for layer, gone in zip(layers, cut, strict=True)]
    inner = replace(update, layers=thinner, targets=None)
    change = rewire(inner, Prune(count=floor_fraction), None, Grow(score.gradient))
    removed = [gone | more for gone, more in zip(cut, change.removed, strict=True)]
    return Change(change.masks, removed, change.grown)
