"""Other methods of the paper's first figure, and the two that users ask for today, as cells beside sparse momentum's.

Every run is ours to shorten, as the papers train for 100 to 1000 epochs: 10 epochs on LeNet-300-100 and 5 on LeNet-5-Caffe, with a cosine
schedule. Methods whose density is an outcome are cut to the published density by their own score, and train on with fixed masks for the
last 30%; what they learn beside the weights (noise, gates) has a learning rate ten times the published one, to get as far.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from regrow.config import Schedule
from regrow.experiments.experiment import Cell
from regrow.experiments.targets import Target
from regrow.presets import PUBLISHED
from regrow.published import suited

EPOCHS = {"lenet300": 10, "lenet5": 5}
_STEPS = 540  # of an epoch: 54,000 images in batches of 100
_FINETUNE = 0.3
_EXACT = {"budget": "exact"}


@dataclass(frozen=True)
class _Point:
    """A method at a density in %, with the published error where there is one."""

    method: str
    percent: float
    error: float | None = None
    options: dict[str, Any] = field(default_factory=dict)
    scope: str = "fully-sparse"
    distribution: str = ""
    update_every: int = 0


_SURGERY = {"start_density": 0.02, "dense_share": 0.4, "stop": 0.7, **_EXACT}
_NOISE = {"noise_lr": 0.01, **_EXACT}
_GATES = {"gate_lr": 0.01, **_EXACT}
_LEARNING = {"mu": 0.005, "growth": 1.14}  # 28 C steps, about as many as published, four in an epoch
_LAYERWISE = {"dense_share": 0.4, "rounds": 4, "until": 0.8}
_SHARING = {"dense_share": 0.4, **_EXACT}
_MOVEMENT = {"begin": 0.3, "end": 0.8, "select": "global"}

POINTS: dict[str, tuple[_Point, ...]] = {
    "lenet300": (
        _Point("obd", 8.0, 2.0, {"dense_share": 0.4, "rounds": 4}),
        _Point("l-obs", 1.5, 2.0, _LAYERWISE, distribution="er"),
        _Point("dns", 1.8, 2.0, _SURGERY),
        _Point("variational-dropout", 1.5, 1.9, _NOISE),
        _Point("soft-weight-sharing", 4.4, 1.9, _SHARING),
        _Point("lc", 1.0, 3.2, _LEARNING, update_every=_STEPS // 4),
        _Point("nest", 1.4, 1.58, {"width": 0.4}),
        _Point("targeted-dropout", 5.0, 3.13, {"drop": 0.99}, "dense:@last"),
        _Point("targeted-dropout", 2.0, 3.77, {"drop": 0.99}, "dense:@last"),
        _Point("l0", 10.0, 1.8, _GATES),
        _Point("bayesian-compression", 10.8, 1.8, _NOISE),
        _Point("movement", 5.0, None, _MOVEMENT),
        _Point("str", 5.0, None, _EXACT),
    ),
    "lenet5": (
        _Point("l-obs", 1.0, 2.1, _LAYERWISE, distribution="erk"),
        _Point("dns", 0.9, 0.9, _SURGERY),
        _Point("variational-dropout", 0.4, 0.8, _NOISE),
        _Point("soft-weight-sharing", 0.5, 1.0, _SHARING),
        _Point("lc", 1.0, 1.1, _LEARNING, update_every=_STEPS // 4),
        _Point("targeted-dropout", 5.0, 1.96, {"drop": 0.99}, "dense:@last"),
        _Point("targeted-dropout", 10.0, 1.95, {"drop": 0.99}, "dense:@last"),
        _Point("l0", 1.4, 1.0, _GATES),
        _Point("movement", 5.0, None, _MOVEMENT),
        _Point("str", 5.0, None, _EXACT),
    ),
}
"""Published points: those of the figure, and of L0 and Bayesian compression from texts about them."""


def cells(model: str) -> list[Cell]:
    """The cells of one network."""
    return [_cell(model, point) for point in POINTS[model]]


def _cell(model: str, point: _Point) -> Cell:
    base = PUBLISHED[f"mnist-{model}"]
    density, epochs, options = round(point.percent / 100, 6), EPOCHS[model], dict(point.options)
    if options.get("budget") == "exact":
        options["finetune_steps"] = round(_FINETUNE * epochs * _STEPS)
    sparse = replace(base.sparse, method=point.method, density=density, options=options)
    sparse = replace(sparse, scope=point.scope, distribution=point.distribution, update_every=point.update_every)
    config = replace(base, epochs=epochs, schedule=Schedule("cosine"), sparse=sparse, checkpoint_seconds=30.0)
    config = replace(suited(config, ())[0], evaluate_every=5, patience=2)
    return Cell(model, point.method, density, config, None if point.error is None else Target(point.error))
