"""Masks and numbers looked at before anything is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from torch import Tensor

from regrow.allowance import Allowance
from regrow.errors import NonFiniteError, StateError
from regrow.evidence import CompactMoments
from regrow.marks import Marks, count_of
from regrow.methods.method import Method
from regrow.parameter import SparseParameter
from regrow.scope import Layer
from regrow.topology.score import all_finite
from regrow.topology.view import LayerView, Need, Update


def check_first(method: Method, masks: Sequence[Tensor | Marks], counts: Sequence[int]) -> None:
    """Refuse first masks that are not the budget."""
    found = sum(count_of(mask) for mask in masks)
    if found > sum(counts) or (found < sum(counts) and method.budget != "upper bound"):
        raise StateError(f"method {method.name!r} starts with {found} weights where the budget is {sum(counts)}")


def check_budget(method: Method, allowance: Allowance, update: Update, after: list[int]) -> None:
    """Refuse numbers of weights after an update that break the method's budget rule."""
    rule = method.budget
    total = sum(update.targets) if update.targets is not None else sum(view.nnz for view in update.layers)
    empty = [view.name for view, n in zip(update.layers, after, strict=True) if n == 0]
    held = rule != "free" and (rule != "outcome" or update.targets is not None)
    broken = sum(after) > total if rule == "upper bound" else sum(after) != total and held
    beyond = allowance.exceeded(after, [view.cost for view in update.layers], update.limit)
    if empty or broken or beyond:
        what = f"emptied layer {empty[0]}" if empty else f"left {sum(after)} weights where the budget is {total}"
        what = what if empty or broken else beyond
        raise StateError(
            f"method {method.name!r} {what} at topology update {update.number}: its pieces break its budget rule ({rule})"
        )


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
    if isinstance(view.evidence, CompactMoments) and not view.evidence.finite():
        yield "the evidence for growth", view.weight.new_full((1,), float("nan"))
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


def refuse_empty(layers: Sequence[Layer], masks: Mapping[str, Tensor | Marks]) -> None:
    """Refuse masks of whole parameters that leave a layer without a weight."""
    for layer in layers:
        mask = masks[layer.parameter_name]
        if not count_of(mask if isinstance(mask, Marks) else layer.band(mask)):
            raise StateError(f"layer {layer.name} has no non-zero weight to take a mask from")
