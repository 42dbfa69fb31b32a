"""Optimal brain damage: remove the weights whose loss the curvature says is smallest."""

from __future__ import annotations

from typing import Literal

from regrow.calibration import Curvature, refuse_unswept
from regrow.calibration import curvature as diagonal
from regrow.methods import options
from regrow.methods.method import Method
from regrow.topology.cycle import Change, to_masks
from regrow.topology.initial import everything
from regrow.topology.prune import globally_smallest
from regrow.topology.schedule import When, in_rounds, updates_for_rounds
from regrow.topology.score import wide
from regrow.topology.view import Update


def method(
    dense_share: float = 0.4,
    rounds: int = 4,
    until: float = 0.8,
    curvature: Literal["obd", "fisher", "empirical"] = "obd",
) -> Method:
    r"""Optimal brain damage (LeCun, Denker & Solla 1990), from a trained network.

    Saliency s_k = h_kk w_k^2 / 2, h_kk the diagonal of the Hessian, by one backward sweep of second derivatives:

        top:   c = p (1 - p)                                  (softmax and cross-entropy)
        back:  c_{l-1} = f'(a_{l-1})^2 (W_l^2)^T c_l           (Levenberg-Marquardt form: h >= 0)
        h(W_l) = mean over samples of c_l (x_{l-1}^2)^T

    The smallest saliencies of all layers together go, in rounds with training between. The sweep drops cross terms inside a layer
    and knows pooling and common activations only; ``fisher`` (labels drawn from the model, one gradient per sample) is exact for ReLU
    networks and takes any; ``empirical`` has the true labels.

    Pass ``calibration=``: pairs (inputs, targets), or a function that returns them.

    Args:
        dense_share: share of the run that trains dense first; 0 prunes a trained network after the first step.
        rounds: prune in so many equal ratios.
        until: share of the run at which the last round ends.
        curvature: ``obd``, ``fisher`` or ``empirical``.
    """
    options.within("dense_share", dense_share, 0, 1, open_high=True)
    options.at_least("rounds", rounds, 1)
    options.within("until", until, dense_share, 1, open_low=rounds > 1, open_high=True)
    options.one_of("curvature", curvature, ("obd", "fisher", "empirical"))
    return Method(
        name="obd",
        paper="LeCun et al.",
        year=1990,
        summary="rounds of removing the weights with the smallest curvature times square",
        initial=everything,
        rewire=lambda update: _damage(update, curvature),
        when=When("epoch", at_least=updates_for_rounds(dense_share, until, rounds)),
        density=lambda target: in_rounds(target, dense_share, until, rounds),
        calibration="batches",
        fits=(lambda model, layers: refuse_unswept(model)) if curvature == "obd" else None,
        budget="schedule",
        neutral={},
    )


def _damage(update: Update, kind: Curvature) -> Change:
    count = sum(layer.nnz for layer in update.layers) - sum(update.targets or [layer.nnz for layer in update.layers])
    if count <= 0:
        return to_masks(update, [layer.mask for layer in update.layers])
    source = update.source
    sparse = [source.layers[layer.index] for layer in update.layers]
    found = diagonal(kind, source.model, sparse, source.calibration, source.average)
    scores = [0.5 * h * wide(layer.weight).square() for h, layer in zip(found, update.layers, strict=True)]
    gone = globally_smallest(update.layers, scores, count)
    return to_masks(update, [layer.mask & ~g for layer, g in zip(update.layers, gone, strict=True)])
