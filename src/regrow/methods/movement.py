"""Movement pruning: keep the weights that fine-tuning moves away from zero."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from regrow.errors import ConfigurationError
from regrow.methods import options
from regrow.methods.method import Method
from regrow.topology.cycle import Change, to_masks
from regrow.topology.initial import everything
from regrow.topology.outcome import Outcome
from regrow.topology.schedule import When, cubic
from regrow.topology.score import wide
from regrow.topology.select import largest, largest_overall
from regrow.topology.view import LayerView, Update
from regrow.weighting import Side, Trained, Weighting


def method(
    begin: float = 0.1,
    end: float = 0.8,
    score_lr: float | None = 1e-2,
    select: Literal["layer", "global"] = "layer",
    soft: bool = False,
    threshold: float = 0.1,
    penalty: float = 400.0,
    budget: Literal["outcome", "exact"] = "outcome",
    finetune_steps: int = 0,
) -> Method:
    r"""Movement pruning (Sanh, Wolf & Rush 2020): made for fine-tuning a trained network.

    A score S per weight, learnt with the weights by a gradient that goes straight through the choice:

        w' = w m,   m = top-k of S per matrix,   dL/dw = m dL/dw',   dL/dS = w dL/dw' for all entries
        d(t): 1 up to t_i, then d_f + (1 - d_f)(1 - (t - t_i)/(t_e - t_i))^3, d_f from t_e on
        soft: m = sig(S) > tau(t),  loss + lambda(t) * mean over matrices of mean sig(S),  tau cubic from 0, lambda proportional

    Masked weights rest at their last value and return with it.

    Args:
        begin, end: t_i and t_e as shares of the run.
        score_lr: learning rate of S, which follows the weights' schedule; None is the weights' own.
        select: top-k of each matrix, or of the whole network.
        soft: threshold the scores; density is then an outcome.
        threshold, penalty: tau and lambda at the end (soft).
        budget, finetune_steps: ``exact`` cuts a soft run to its budget, and trains on with fixed masks.
    """
    options.ordered("begin", begin, "end", end)
    options.one_of("select", select, ("layer", "global"))
    options.within("threshold", threshold, 0, 1, open_low=True, open_high=True)
    options.at_least("penalty", penalty, 0)
    options.rate("score_lr", score_lr)
    steps = options.finetune(budget, finetune_steps)
    if budget == "exact" and not soft:
        raise ConfigurationError(
            "top-k movement pruning has an exact budget by itself: budget='exact' belongs to soft=True"
        )
    tau = cubic(0.0, threshold, begin, end)

    def scores(layer: Trained) -> dict[str, Side]:
        return {"score": Side(torch.zeros_like(wide(layer.theta)), lr=score_lr)}

    def pressure(layers: Any) -> Tensor:
        means = torch.stack([layer.side["score"].sigmoid().mean() for layer in layers])
        return penalty * tau(layers[0].progress) / threshold * means.mean()

    def top(update: Update) -> Change:
        found, counts = [layer.side["score"].detach() for layer in update.layers], update.targets or []
        every = [torch.ones_like(layer.mask) for layer in update.layers]
        if select == "global":
            firsts = [largest(score, 1, among) for score, among in zip(found, every, strict=True)]
            rest = largest_overall(found, sum(counts) - len(firsts), [~first for first in firsts])
            return to_masks(update, [first | more for first, more in zip(firsts, rest, strict=True)])
        return to_masks(update, [largest(s, n, among) for s, n, among in zip(found, counts, every, strict=True)])

    outcome = Outcome(_openness, tau, least=0.005, finetune_steps=steps)
    return Method(
        name="movement",
        paper="Sanh et al.",
        year=2020,
        summary="keep the weights that training moves away from zero, by a learnt score",
        initial=everything,
        weighting=Weighting(side=scores, show=_show, penalty=pressure if soft else None, straight=frozenset({"score"})),
        outcome=outcome if soft else None,
        rewire=outcome.rewire if soft else top,
        when=When(1, journal_every=100),
        density=None if soft else lambda target: cubic(1.0, target, begin, end),
        budget="outcome" if soft else "schedule",
        neutral={},
        extra_memory="2 dense tensors per layer (theta, scores) and the scores' optimizer state",
    )


def _openness(layer: LayerView) -> Tensor:
    return layer.side["score"].detach().sigmoid()


def _show(layer: Trained) -> Tensor:
    return _Gate.apply(layer.theta, layer.side["score"], layer.mask)


class _Gate(torch.autograd.Function):
    """theta * mask, with the gradient of the mask going straight to the score."""

    @staticmethod
    def forward(ctx: Any, theta: Tensor, score: Tensor, mask: Tensor) -> Tensor:
        ctx.save_for_backward(theta, mask)
        return theta * mask

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        theta, mask = ctx.saved_tensors
        return grad * mask, grad * theta, None
