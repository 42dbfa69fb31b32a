"""Weights as a model shows them, made from the weights that are trained and from parameters beside them.

theta, side -> show  -> w     what evaluation, checkpoints and the finished model have
            -> train -> w'    what training computes with, where that differs (noise, dense training)
dL/dw'      -> pull  -> dL/dtheta, dL/dside, once per optimizer step

As gradients of w' are pulled back once, when they are complete, accumulation, clipping, unscaling, overflow and averaging over
ranks act on them as on any other gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from regrow.scope import Layer
from regrow.topology.view import Update


@dataclass(frozen=True)
class Side:
    """A tensor trained beside the weights.

    ``lr`` is that of the layer's parameter group, or a number of its own that follows the group's schedule. ``weight_decay`` None is
    the group's.
    """

    init: Tensor
    lr: float | None = None
    weight_decay: float | None = 0.0


@dataclass(eq=False)
class Trained:
    """One layer as its weighting sees it; what comes out must be differentiable in ``theta``, ``side`` and ``shared``.

    ``shared`` are the side parameters of the whole network. ``rng`` draws by (seed, step, ...), the same on all ranks.
    """

    layer: Layer
    index: int
    theta: Tensor
    mask: Tensor
    side: Mapping[str, Tensor] = field(default_factory=dict)
    shared: Mapping[str, Tensor] = field(default_factory=dict)
    memory: Mapping[str, Tensor] = field(default_factory=dict)
    rng: Callable[..., torch.Generator] = torch.Generator
    progress: float = 0.0
    samples: int = 1
    steps: int | None = None


@dataclass(eq=False)
class Product:
    """One call of a linear layer or convolution in training: ``trained.theta`` and side parameters in place of a weight.

    ``multiply(x, weight, bias)`` is the layer's own product; ``normal(like)`` draws by (seed, step, layer, rank, call).
    """

    x: Tensor
    bias: Tensor | None
    trained: Trained
    multiply: Callable[[Tensor, Tensor, Tensor | None], Tensor]
    normal: Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Weighting:
    """What is trained, and what the model shows of it. Without any piece: theta is kept beyond the mask, w = theta * mask.

    Args:
        reach: the weights that receive gradients, chosen at each update; all by default.
        side: side parameters of one layer.
        shared: side parameters of the whole network.
        show: w of one layer; theta * mask by default, whose gradient goes straight through.
        train: what training computes with; as shown by default.
        product: the layer's whole product in training, in place of ``train`` (local reparametrisation).
        penalty: a term of the loss that needs no data, added once per optimizer step.
        settle: acts on a layer after the step (clamps, averages).
        straight: side parameters whose gradient goes straight through, and so is not a derivative.
        decays: the optimizer may have a weight decay for these layers.
        samples: the number of training samples is needed.
    """

    reach: Callable[[Update], list[Tensor]] | None = None
    side: Callable[[Trained], dict[str, Side]] | None = None
    shared: Callable[[Sequence[Trained]], dict[str, Side]] | None = None
    show: Callable[[Trained], Tensor] | None = None
    train: Callable[[Trained], Tensor] | None = None
    product: Callable[[Product], Tensor] | None = None
    penalty: Callable[[Sequence[Trained]], Tensor] | None = None
    settle: Callable[[Trained], None] | None = None
    straight: frozenset[str] = frozenset()
    decays: bool = True
    samples: bool = False

    @property
    def trains_otherwise(self) -> bool:
        """Whether training computes with other weights than evaluation."""
        return self.train is not None or self.product is not None

    @property
    def ends(self) -> bool:
        """Whether there is something to take off when the method is finished."""
        return any(piece is not None for piece in (self.side, self.show, self.train, self.product, self.penalty))


def units_of(layer: Layer) -> tuple[int, ...]:
    """A shape with one number per unit that broadcasts over the layer: input features of linear layers, filters of convolutions."""
    rank = len(layer.shape)
    kept = 1 if isinstance(layer.module, nn.Linear) else layer.output_dim
    return tuple(size if d == kept else 1 for d, size in enumerate(layer.shape[:rank]))
