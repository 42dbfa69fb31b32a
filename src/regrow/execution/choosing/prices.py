"""What a weight of each layer costs on this machine's sparse kernels: ``costs="measured"``.

price_i = milliseconds of forward + backward of layer i on sparse kernels, with its first mask / its present weights

sparsify            listen to the next training pass
before that step    time a copy of every layer on what it was fed; rank 0 decides -> prices of the whole run, part of its state
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from regrow.errors import StateError, UnsupportedError
from regrow.execution.choosing import measure
from regrow.execution.choosing.measure import Bench, Timer, keeps_channels_last
from regrow.execution.choosing.record import Call, Recorder
from regrow.execution.choosing.timings import Timings
from regrow.execution.choosing.trial import dense_copy
from regrow.execution.switch import why_not

if TYPE_CHECKING:
    from regrow.network import SparseNetwork
    from regrow.scope import Layer

_LEAST_MS = 1e-6
_REMEDY = "pass costs=<example input>, which counts multiply-accumulates, or costs={layer: price of one weight}"


def refuse_unmeasurable(layers: list[Layer]) -> None:
    """Raise if a layer cannot run on the sparse kernels, on which prices are measured."""
    for layer in layers:
        if reason := why_not(layer):
            raise UnsupportedError(
                f"costs='measured' times layers on the native kernels, on which {layer.name} cannot run: {reason}. Leave the layer dense "
                f"by scope, or {_REMEDY}"
            )


class Prices:
    """Measures ``network.costs`` once, in the first training step, and keeps them: a stopwatch never says the same twice.

    Args:
        network: the layers, their masks and the costs to fill in.
    """

    def __init__(self, network: SparseNetwork) -> None:
        self.known = False
        self.dense = 0.0
        self.timer: Timer | None = None
        self._network = network
        self._watched: tuple[nn.Module, Recorder] | None = None

    def listen(self, model: nn.Module) -> None:
        """Record the next training pass, unless prices are known."""
        if not self.known and self._watched is None:
            self._watched = model, Recorder(model)

    def stop(self) -> None:
        """Listen no more."""
        if self._watched is not None:
            self._watched[1].remove()
            self._watched = None

    def take(self) -> None:
        """If a training pass was recorded: measure. Training goes on as if nothing had happened."""
        if self._watched is None or not self._watched[1].calls:
            return
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            found = self._measured(*self._watched)
        # Ranks time differently, but must share alike.
        self.restore(*self._network.ranks.first(found))
        self._network.allowance.settle()

    def require(self) -> None:
        """Refuse a topology update without prices."""
        if not self.known:
            raise StateError(
                "costs='measured' saw no training pass before this topology update (torch.compile hides what layers are fed): "
                + _REMEDY
            )

    def state(self) -> dict[str, float] | None:
        """Milliseconds per weight by layer; None before they were measured."""
        names = (layer.name for layer in self._network.layers)
        return dict(zip(names, self._network.costs, strict=True)) if self.known else None

    def restore(self, prices: dict[str, float] | None, dense: float = 0.0) -> None:
        """Go on with prices that were measured before; None leaves everything as it is."""
        if prices is not None:
            self.dense = dense
            self._network.costs = [prices[layer.name] for layer in self._network.layers]
            self.known = True
            self.stop()

    def _measured(self, model: nn.Module, recorder: Recorder) -> tuple[dict[str, float], float]:
        timings = Timings()
        bench = Bench(timings, self.timer or measure.milliseconds, keeps_channels_last(model), in_windows=0.0)
        users: dict[int, list[tuple[nn.Module, Call]]] = {}
        for name, call in recorder.calls.items():
            module = model.get_submodule(name)
            users.setdefault(id(getattr(module, "weight", None)), []).append((module, call))
        prices = {
            layer.name: self._price(bench, layer, users.get(id(layer.parameter), [])) for layer in self._network.layers
        }
        dense = self._dense(bench, users) if self._network.settings.milliseconds is not None else 0.0
        timings.save()
        return prices, dense

    def _dense(self, bench: Bench, users: dict[int, list[tuple[nn.Module, Call]]]) -> float:
        """Milliseconds of forward + backward of all layers, computed dense."""
        calls = [pair for layer in self._network.layers for pair in users.get(id(layer.parameter), [])]
        return sum(call.times * bench.dense(call, dense_copy(module)).ms for module, call in calls)

    def _price(self, bench: Bench, layer: Layer, users: list[tuple[nn.Module, Call]]) -> float:
        """Milliseconds per present weight, over all calls of all modules that share the weight."""
        if not users:
            raise UnsupportedError(f"costs='measured': layer {layer.name} had no part in the first step; {_REMEDY}")
        mask, reach = self._network.mask_and_reach(layer)
        price = 0.0
        for module, call in users:
            # A timing may come from the cache, of a mask about as dense: its own weights count.
            timing = bench.on_kernels(call, dense_copy(module), mask, reach)
            price += call.times * max(timing.ms, _LEAST_MS) / max(1.0, timing.density * mask.numel())
        return price
