"""Masks and numbers looked at before anything is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor

from regrow.errors import NonFiniteError, StateError
from regrow.marks import count_of
from regrow.methods.method import Method
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
