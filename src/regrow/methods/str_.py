"""STR: a threshold per layer, learnt with the weights."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from regrow.methods import options
from regrow.methods.method import Method
from regrow.topology.initial import everything
from regrow.topology.outcome import Outcome
from regrow.topology.schedule import When
from regrow.topology.score import wide
from regrow.topology.view import LayerView
from regrow.weighting import Side, Trained, Weighting


def method(
    s_init: float = -10.0,
    decay: float | None = None,
    budget: Literal["outcome", "exact"] = "outcome",
    finetune_steps: int = 0,
) -> Method:
    r"""Soft threshold reparametrisation (Kusupati et al. 2020).

        w' = sign(w) relu(|w| - sig(s)),   one s per layer

        dL/dw = dL/dw' where w' != 0, else 0;   dL/ds = -sig'(s) sum sign(w') dL/dw'

    s starts where sig(s) is nearly 0. Weight decay pulls it up, and is what decides the density: without it nothing happens.
    With SGD, by decay alone, s(t) = s_0 exp(-decay/(1 - momentum) * sum of learning rates).

    Args:
        s_init: s_0. ImageNet: -3200 (ResNet-50), -12800 (MobileNetV1); the authors name about -100 for CIFAR-10.
        decay: weight decay of s; None is the weights' own, as published.
        budget, finetune_steps: ``exact`` cuts to the budget by |w| - sig(s) so many steps before the end, and trains on with fixed masks.
    """
    options.within("s_init", s_init, -1e6, 0)
    if decay is not None:
        options.at_least("decay", decay, 0)

    def threshold(layer: Trained) -> dict[str, Side]:
        return {"s": Side(wide(layer.theta).new_full((1,), s_init), weight_decay=decay)}

    outcome = Outcome(_height, finetune_steps=options.finetune(budget, finetune_steps))
    return Method(
        name="str",
        paper="Kusupati et al.",
        year=2020,
        summary="soft-threshold each layer by a learnt number that weight decay raises",
        initial=everything,
        weighting=Weighting(side=threshold, show=_show),
        outcome=outcome,
        rewire=outcome.rewire,
        when=When(1, journal_every=100),
        rate_needs_steps=False,
        budget="outcome",
        neutral={"s_init": -1e4, "decay": 0.0},
        extra_memory="1 dense tensor per layer (theta), 1 number per layer",
    )


def _show(layer: Trained) -> Tensor:
    return layer.theta.sign() * (layer.theta.abs() - layer.side["s"].sigmoid()).relu()


def _height(layer: LayerView) -> Tensor:
    return wide(layer.weight).abs() - layer.side["s"].detach().sigmoid()
