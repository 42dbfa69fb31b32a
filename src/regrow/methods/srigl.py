"""SRigL: RigL with constant fan-in and neuron ablation."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from regrow.marks import Marks, positions
from regrow.methods import options
from regrow.methods.method import Method
from regrow.topology import score
from regrow.topology.bands import CompactView
from regrow.topology.cycle import Change, to_masks
from regrow.topology.initial import Setup, ranked
from regrow.topology.schedule import When, constant, cosine
from regrow.topology.select import largest
from regrow.topology.view import LayerView, Update, needs


def method(prune_rate: float = 0.3, ablation: float = 0.3, stop: float = 0.75) -> Method:
    r"""Structured RigL (Lasby et al. 2024): every active output unit of a layer has the same number k of incoming weights.

    Per layer, every dT = 100 steps, with f as in RigL:

        salient = top (1 - f) nnz by |w|  union  top f nnz by |g|
        ablate units with fewer than max(1, gamma k) salient weights (never in the last layer)
        k = floor(budget / active units);  keep at most k of the largest |w| per active unit, grow by |g| until each has k

    Args:
        prune_rate: alpha of RigL's cosine.
        ablation: gamma.
        stop: share of the run after which masks stay.
    """
    options.within("prune_rate", prune_rate, 0, 1, open_high=True)
    options.within("stop", stop, 0, 1, open_low=True)
    options.within("ablation", ablation, 0, 1)

    @score.by_bands
    @needs("gradient")
    def rewire(update: Update) -> Change:
        last = len(update.layers) - 1
        gamma = [0.0 if v.place == last else ablation for v in update.layers]
        budgets = update.targets or [layer.nnz for layer in update.layers]
        return to_masks(
            update, [_rewire(v, update.rate, g, n) for v, g, n in zip(update.layers, gamma, budgets, strict=True)]
        )

    return Method(
        name="srigl",
        paper="Lasby et al.",
        year=2024,
        summary="RigL with the same number of weights in every active unit",
        distribution="erk",
        initial=_constant_fan_in,
        rewire=rewire,
        when=When(100, until=stop, phase="instead"),
        rate=cosine(prune_rate, until=stop),
        density=constant,
        budget="upper bound",
        extra_memory="1 dense gradient per layer in update steps",
    )


@ranked
def _constant_fan_in(setup: Setup) -> list[Tensor]:
    """The first k = max(1, floor(count / units)) weights of each unit, at random or as ranked, in as many units as the count pays for."""
    masks = []
    for layer, count in zip(setup.layers, setup.counts, strict=True):
        draws = layer.units(setup.rank(layer))
        units, dense = draws.shape
        fan_in = min(max(1, count // units), dense)
        active = largest(
            draws.max(1).values, min(units, count // fan_in), torch.ones(units, dtype=torch.bool, device=draws.device)
        )
        masks.append(layer.from_units(_top_per_row(draws, fan_in * active)))
    return masks


def _rewire(layer: LayerView, rate: float, gamma: float, budget: int) -> Any:
    if isinstance(layer, CompactView):
        return _rewire_compact(layer, rate, gamma, budget)
    weight, gradient, mask = (layer.units(t) for t in (score.magnitude(layer), score.gradient(layer), layer.mask))
    dense = mask.shape[1]
    drop = math.floor(rate * layer.nnz + 1e-9)
    kept = largest(weight, layer.nnz - drop, mask)
    salient = (kept | largest(gradient, drop, torch.ones_like(mask))).sum(1)
    active = _active_units(salient, int(mask.sum(1).max()), gamma, budget, dense)
    fan_in = min(budget // int(active.count_nonzero()), dense)
    present = mask & active[:, None]
    kept = largest(weight, min(layer.nnz - drop, int(present.count_nonzero())), present)
    survivors = _top_per_row(torch.where(kept, weight, -1.0), torch.minimum(kept.sum(1), fan_in * active))
    wanted = fan_in * active - survivors.sum(1)
    grown = _top_per_row(torch.where(survivors, -1.0, gradient), wanted)
    return layer.from_units(survivors | grown)


def _rewire_compact(layer: CompactView, rate: float, gamma: float, budget: int) -> Marks:
    """The same for a vector of present weights, whose rows are output units; gradients of the others come in bands of rows."""
    weight, units = score.magnitude(layer), layer.before.shape[0]
    dense = layer.numel // units
    unit = torch.div(layer.where, dense, rounding_mode="floor")
    drop = math.floor(rate * layer.nnz + 1e-9)
    kept = largest(weight, layer.nnz - drop, layer.mask)
    steep = largest(score.scores_anywhere(score.gradient, layer), drop, ~layer.nothing())
    salient = _per_unit((layer.marks(kept) | steep).positions, units, dense)
    active = _active_units(salient, int(unit.bincount(minlength=units).max()), gamma, budget, dense)
    fan_in = min(budget // int(active.count_nonzero()), dense)
    present = active[unit]
    kept = largest(weight, min(layer.nnz - drop, int(present.count_nonzero())), present)
    survivors = layer.marks(_top_in_units(weight, unit, kept, fan_in))
    wanted = fan_in * active - _per_unit(survivors.positions, units, dense)
    found = []
    for first, band in layer.bands():
        steepness = band.units(score.gradient(band))
        taken = survivors.within(first, band.numel).view_as(steepness)
        mine = wanted[first // dense : first // dense + len(taken)]
        found.append(positions(taken | _top_per_row(torch.where(taken, -1.0, steepness), mine)) + first)
    return Marks(layer.before.shape, torch.cat(found))


def _per_unit(where: Tensor, units: int, dense: int) -> Tensor:
    return torch.div(where, dense, rounding_mode="floor").bincount(minlength=units)


def _top_in_units(weight: Tensor, unit: Tensor, kept: Tensor, count: int) -> Tensor:
    """Mark the ``count`` largest of the kept weights of each unit, ties to the lower position; all where there are not so many."""
    mine = positions(kept)
    order = mine[weight[mine].argsort(descending=True, stable=True)]
    order = order[unit[order].argsort(stable=True)]
    sizes = unit[order].bincount()
    rank = torch.arange(len(order)) - (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    chosen = torch.zeros_like(kept)
    chosen[order[rank < count]] = True
    return chosen


def _active_units(salient: Tensor, fan_in: int, gamma: float, budget: int, dense: int) -> Tensor:
    """Units that stay: enough salient weights, at least as many as the budget needs, at most as many as it can serve."""
    everyone = torch.ones_like(salient, dtype=torch.bool)
    bound = max(1, int(gamma * fan_in)) if gamma else 0
    enough = int((salient >= bound).count_nonzero())
    count = min(max(enough, math.ceil(budget / dense), 1), budget)
    return largest(salient.float(), min(count, len(salient)), everyone)


def _top_per_row(scores: Tensor, counts: Tensor) -> Tensor:
    """Mark the ``counts[i]`` largest entries of row i, ties to the lower column."""
    rank = scores.argsort(dim=1, descending=True, stable=True).argsort(dim=1, stable=True)
    return rank < counts[:, None]
