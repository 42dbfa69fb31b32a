"""Targeted dropout: drop small weights at random in training, so that the network gets used to losing them."""

from __future__ import annotations

from torch import Tensor

from regrow import randomness
from regrow.methods import options
from regrow.methods.method import Method
from regrow.methods.units import largest_of_units
from regrow.topology.cycle import Change, to_masks
from regrow.topology.initial import Setup, everything
from regrow.topology.schedule import Curve, When
from regrow.topology.view import Update
from regrow.weighting import Trained, Weighting


def method(drop: float = 0.5, ramp: float = 0.5) -> Method:
    r"""Targeted dropout of weights (Gomez et al. 2019).

    In every unit all but the largest |w| are targeted; each targeted weight is dropped with probability ``drop`` per step:

        training:    w (1 - targeted [u < drop]), no rescaling, gradient through what is kept
        evaluation:  w (1 - targeted)
        ramp:        targeted share (1 - density)(0.95 min(1, t/T) + 0.05 clip((t - T)/T, 0, 1)),  drop * min(1, t/2T)

    Targets are chosen anew after each step. The authors leave the last layer alone: ``scope="dense:@last"``.

    Args:
        drop: probability at the end of the ramp. Theirs: 0.33 to 0.66 without, 0.99 with a ramp.
        ramp: 2T as a share of the run; 0 for none.
    """
    options.within("drop", drop, 0, 1)
    options.within("ramp", ramp, 0, 1)

    def dropped(layer: Trained) -> Tensor:
        chance = drop * (min(1.0, layer.progress / ramp) if ramp else 1.0)
        u = randomness.uniform(layer.mask, layer.rng("targeted", layer.index))
        return layer.theta * (layer.mask | (u >= chance))

    def first(setup: Setup) -> list[Tensor]:
        pairs = zip(setup.layers, setup.counts, strict=True)
        return everything(setup) if ramp else [largest_of_units(layer, count) for layer, count in pairs]

    return Method(
        name="targeted-dropout",
        paper="Gomez et al.",
        year=2019,
        summary="drop the small weights of each unit at random until they can go",
        initial=first,
        weighting=Weighting(train=dropped),
        rewire=_retarget,
        when=When(1, journal_every=100),
        density=lambda target: density_of(target, ramp),
        budget="schedule",
        neutral={},
        extra_memory="1 dense tensor per layer (theta)",
    )


def density_of(target: float, ramp: float) -> Curve:
    """The share of weights that are not targeted."""

    def density(progress: float) -> float:
        if ramp == 0:
            return target
        turns = 2 * progress / ramp
        return 1 - (1 - target) * (0.95 * min(1.0, turns) + 0.05 * min(max(turns - 1, 0.0), 1.0))

    return density


def _retarget(update: Update) -> Change:
    counts = update.targets if update.targets is not None else [layer.nnz for layer in update.layers]
    return to_masks(update, [largest_of_units(v, n) for v, n in zip(update.layers, counts, strict=True)])
