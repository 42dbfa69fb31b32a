"""The algebra of the optimal brain surgeon on one layer: which weights go, and what the others must become."""

from __future__ import annotations

import torch
from torch import Tensor

from regrow.topology.select import smallest

_CHUNK = 32


def inverse(moment: Tensor, damping: float) -> Tensor:
    """(H + damping I)^-1 in float64."""
    eye = torch.eye(len(moment), dtype=torch.float64, device=moment.device)
    return torch.linalg.inv(moment.double() + damping * eye)


def saliencies(weights: Tensor, inverted: Tensor) -> Tensor:
    """L_q = w_q^2 / (2 Hinv_qq) of every weight."""
    return weights.square() / (2 * inverted.diagonal(dim1=-2, dim2=-1))


def stale(weights: Tensor, inverted: Tensor, count: int, inner: int) -> tuple[Tensor, Tensor]:
    """Remove the ``count`` least salient weights of a layer in the order of the start; returns new weights and what is gone.

    ``weights`` is [units, d]; of its columns the first ``inner`` may go, and a bias behind them is compensated only.
    """
    scores = saliencies(weights, inverted)[:, :inner]
    gone = smallest(scores, count, torch.ones_like(scores, dtype=torch.bool))
    order = torch.where(gone, scores, torch.inf).argsort(dim=1, stable=True)
    new, numbers = weights.clone(), gone.sum(1)
    removed = torch.zeros_like(weights, dtype=torch.bool)
    units = torch.arange(len(weights), device=weights.device)
    for rank in range(int(numbers.max()) if len(numbers) else 0):
        active = units[numbers > rank]
        q = order[active, rank]
        change = (new[active, q] / inverted[q, q])[:, None] * inverted[q]
        removed[active, q] = True
        new[active] = (new[active] - change).masked_fill(removed[active], 0.0)
    return new, gone


def summed(weights: Tensor, inverted: Tensor, count: int, inner: int) -> tuple[Tensor, Tensor]:
    """Remove the ``count`` least salient weights at once: every one's own update added up, as WoodFisher does."""
    scores = saliencies(weights, inverted)[:, :inner]
    gone = smallest(scores, count, torch.ones_like(scores, dtype=torch.bool))
    pulls = torch.zeros_like(weights)
    pulls[:, :inner] = (weights / inverted.diagonal())[:, :inner] * gone
    new = weights - pulls @ inverted
    new[:, :inner] = new[:, :inner].masked_fill(gone, 0.0)
    return new, gone


def exact(weights: Tensor, inverted: Tensor, count: int, inner: int) -> tuple[Tensor, Tensor]:
    """Remove weights unit by unit with saliencies renewed after each removal, then choose over units by cost."""
    found = [_sequence(chunk, inverted, inner) for chunk in weights.split(_CHUNK)]
    cost, order = torch.cat([cost for cost, _ in found]), torch.cat([order for _, order in found])
    # What a removal costs counts at least as much as those that must come before it.
    chosen = smallest(cost.cummax(dim=1).values, count, torch.ones_like(cost, dtype=torch.bool)).sum(1)
    gone = torch.zeros_like(cost, dtype=torch.bool)
    for unit, number in enumerate(chosen.tolist()):
        gone[unit, order[unit, :number]] = True
    return _compensated(weights, inverted, gone), gone


def _sequence(weights: Tensor, inverted: Tensor, inner: int) -> tuple[Tensor, Tensor]:
    """In which order a unit loses all its weights, and what each removal costs; weights of zero go first, for nothing."""
    units, width = weights.shape
    h, w = inverted.expand(units, width, width).clone(), weights.clone()
    gone = torch.zeros_like(weights, dtype=torch.bool)
    rows = torch.arange(units, device=weights.device)
    costs, order = torch.zeros_like(weights[:, :inner]), torch.zeros_like(weights[:, :inner], dtype=torch.long)
    missing = weights[:, :inner] == 0
    for step in range(inner):
        score = saliencies(w, h)[:, :inner].masked_fill(missing, 0.0).masked_fill(gone[:, :inner], torch.inf)
        q = score.argmin(dim=1)
        costs[:, step], order[:, step] = score[rows, q], q
        column = h[rows, :, q]
        pivot = column[rows, q]
        w -= (w[rows, q] / pivot)[:, None] * column
        h -= column[:, :, None] * (column / pivot[:, None])[:, None, :]
        gone[rows, q] = True
        w.masked_fill_(gone, 0.0)
        h[rows, q, q] = 1.0  # never read again; keeps divisions finite
    return costs, order


def _compensated(weights: Tensor, inverted: Tensor, gone: Tensor) -> Tensor:
    """The best remaining weights once a set is gone: w - Hinv[:, P] Hinv[P, P]^-1 w_P."""
    new = weights.clone()
    for unit in range(len(weights)):
        p = gone[unit].nonzero().squeeze(1)
        if len(p):
            new[unit] -= inverted[:, p] @ torch.linalg.solve(inverted[p][:, p], weights[unit, p])
            new[unit, p] = 0.0
    return new
