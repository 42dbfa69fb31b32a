"""Masks and numbers looked at before anything is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from torch import Tensor

from regrow.errors import NonFiniteError, StateError
from regrow.marks import count_of
from regrow.methods.method import Method
from regrow.parameter import SparseParameter
from regrow.scope import Layer
from regrow.topology.score import all_finite
from regrow.topology.view import LayerView, Need


def check_first(method: Method, masks: Sequence[Tensor], counts: Sequence[int]) -> None:
    """Refuse first masks that are not the budget."""
    found = sum(count_of(mask) for mask in masks)
    if found > sum(counts) or (found < sum(counts) and method.budget != "upper bound"):
        raise StateError(f"method {method.name!r} starts with {found} weights where the budget is {sum(counts)}")


def check_finite(views: Sequence[LayerView], needs: frozenset[Need], when: str) -> None:
    """Refuse an update on weights, momentum or gradients that are not finite."""
    for view in views:
        for what, tensor in _inspected(view, needs):
            if not all_finite(tensor):
                raise NonFiniteError(
                    f"{what} of layer {view.name} is not finite at {when}: masks were left as they are; lower the learning rate, clip "
                    "gradients, or look for the first non-finite loss"
                )


def _inspected(view: LayerView, needs: frozenset[Need]) -> Iterator[tuple[str, Tensor]]:
    yield "weight", view.weight
    if needs & {"momentum", "present momentum"}:
        yield "momentum", view.momentum
    if "gradient" in needs:
        yield "gradient", view.gradient


def refuse_misfit(parameters: Sequence[SparseParameter]) -> None:
    """Refuse weights that are not what masks make them: loaded or written by hand."""
    for sparse in parameters:
        if count := sparse.misfit():
            raise StateError(
                f"{count} weights of {sparse.name} lie outside its mask: weights and masks are of different states. Load both "
                "(model.load_state_dict, handle.load_state_dict), or take the masks from the zeros (handle.masks_from_zeros())"
            )


def refuse_empty(layers: Sequence[Layer], masks: Mapping[str, Tensor]) -> None:
    """Refuse masks of whole parameters that leave a layer without a weight."""
    for layer in layers:
        if not bool(layer.band(masks[layer.parameter_name]).any()):
            raise StateError(f"layer {layer.name} has no non-zero weight to take a mask from")
