"""The budget in compute of one network: what its present weights may cost together, and what they do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regrow.errors import ConfigurationError
from regrow.methods.method import Method
from regrow.settings import Settings
from regrow.topology import compute
from regrow.topology.cycle import rewire
from regrow.topology.grow import Grow
from regrow.topology.view import Update

if TYPE_CHECKING:
    from regrow.network import SparseNetwork


def check_allowance(settings: Settings, costs: Any) -> None:
    """Refuse a budget in compute that cannot be meant, or that the method cannot keep."""
    name, share = settings.compute_name, settings.compute
    if share is None:
        return
    if not (isinstance(share, Real) and not isinstance(share, bool) and 0 < share <= 1):
        raise ConfigurationError(f"{name} must lie in (0, 1], got {share!r}: 0.1 allows a tenth of the dense compute")
    if settings.macs is not None and settings.milliseconds is not None:
        raise ConfigurationError("macs and milliseconds are two budgets for one thing: give one of them")
    if settings.method.needs_costs:
        raise ConfigurationError(f"cost_power fixes the price that {name} solves for: give one of them")
    if name == "macs" and not isinstance(costs, (Tensor, Mapping)):
        raise ConfigurationError("macs needs to know what a weight costs: pass costs=<example input>")
    if name == "milliseconds" and costs != "measured":
        raise ConfigurationError("milliseconds are measured: pass costs='measured'")
    if reason := _unbound(settings.method):
        raise ConfigurationError(
            f"method {settings.method.name!r} {reason}, so that {name} cannot bind it: leave it out"
        )


def _unbound(method: Method) -> str:
    """Why a method cannot keep a budget in compute; nothing where it can."""
    if method.density is not None or method.budget != "constant":
        return "moves its number of weights"
    if method.fixed_counts is not None:
        return "fixes the number of weights of every layer"
    if method.rewire is not None:
        return "chooses its masks in one piece"
    if method.grow is not None and method.grow.select == "global":
        return "grows over the whole network"
    return ""


class Allowance:
    """A share of what the dense layers cost, in multiply-accumulates or measured milliseconds; none unless asked for.

    Args:
        network: its layers, masks, costs and settings.
    """

    def __init__(self, network: SparseNetwork) -> None:
        self._network = network

    @property
    def name(self) -> str:
        """The argument that asked for it, with its value."""
        settings = self._network.settings
        return f"{settings.compute_name}={settings.compute}"

    @property
    def limit(self) -> float | None:
        """What all present weights may cost together; None without a budget in compute, or before costs were measured."""
        share, prices = self._network.settings.compute, self._network.prices
        known = prices is None or prices.known
        return share * self._dense() if share is not None and known else None

    def limit_of(self, active: Sequence[int]) -> float | None:
        """The limit of the layers that take part in an update: what frozen ones cost is spent."""
        limit = self.limit
        if limit is None:
            return None
        frozen = [0 if i in active else count for i, count in enumerate(self._present())]
        return limit - compute.cost_of(frozen, self._network.costs)

    def share(self, after: dict[str, int] | None = None) -> float | None:
        """What present weights cost as a share of the dense layers', with other counts of some layers if given; None without a limit."""
        if self.limit is None:
            return None
        names = [layer.name for layer in self._network.layers]
        counts = [(after or {}).get(name, count) for name, count in zip(names, self._present(), strict=True)]
        return compute.cost_of(counts, self._network.costs) / self._dense()

    def fit(self, counts: list[int]) -> list[int]:
        """First counts moved to cheaper layers until they keep the limit; an error where none of their sum do."""
        limit, costs = self.limit, self._network.costs
        if limit is None or compute.affordable(counts, costs, limit):
            return counts
        sizes = self._sizes()
        self._refuse_infeasible(sum(counts))
        return compute.within(counts, sum(counts), costs, limit, compute.Bounds([1] * len(sizes), sizes))[0]

    def refuse_first(self, counts: list[int]) -> None:
        """An error for first masks that a method chose beyond the limit."""
        limit, method = self.limit, self._network.settings.method
        if limit is not None and not compute.affordable(counts, self._network.costs, limit):
            raise ConfigurationError(
                f"method {method.name!r} chooses its first weights over the whole network, and they exceed {self.name}: "
                "leave it out, or take another method"
            )

    @torch.no_grad()
    def settle(self) -> None:
        """When costs were measured after the first masks: move weights of layers that cost too much, before they were trained."""
        network, limit = self._network, self.limit
        if limit is None or compute.affordable(self._present(), network.costs, limit):
            return
        self._refuse_infeasible(sum(self._present()))
        views = [network.view(i) for i in range(len(network.layers))]
        change = rewire(Update(views, limit=limit, rng=network.rng), None, None, Grow())
        network.replace_first(change.masks)

    def exceeded(self, counts: list[int], costs: list[float], limit: float | None) -> str:
        """What is wrong with counts beyond a limit; nothing where they keep it."""
        if limit is None or compute.affordable(counts, costs, limit):
            return ""
        return f"left weights beyond {self.name}"

    def _refuse_infeasible(self, total: int) -> None:
        settings, costs = self._network.settings, self._network.costs
        compute.refuse_infeasible(
            settings.compute_name, settings.compute or 1.0, total, costs, self._sizes(), self._dense()
        )

    def _present(self) -> list[int]:
        return [self._network.present(layer) for layer in self._network.layers]

    def _sizes(self) -> list[int]:
        return [math.prod(layer.shape) for layer in self._network.layers]

    def _dense(self) -> float:
        prices = self._network.prices
        return compute.cost_of(self._sizes(), self._network.costs) if prices is None else prices.dense
