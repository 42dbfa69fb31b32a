"""Which layers of a sparsified model compute on sparse kernels, kept in step with masks and growth windows."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from regrow.errors import UnsupportedError
from regrow.execution.layers import Execution, attach, execution_of, unsupported
from regrow.execution.native import available
from regrow.execution.travel import settle, travel
from regrow.network import SparseNetwork
from regrow.scope import Layer


@dataclass(frozen=True)
class Choice:
    """How one layer is computed, and why."""

    layer: str
    density: float
    execution: str
    reason: str


class Switch:
    """Turns sparse execution on for every layer that can have it; the others compute dense with masked weights."""

    def __init__(self, network: SparseNetwork, model: nn.Module) -> None:
        if not available():
            raise UnsupportedError(
                "execution='sparse' needs the native kernels, which are not built here: install regrow with a C++17 compiler "
                "at hand, or use execution='masked'"
            )
        self.network, self.model = network, model
        self.reasons = {layer.name: _why_not(layer) for layer in network.layers}
        self.executions: dict[str, Execution] = {}
        for layer in network.layers:
            if self.reasons[layer.name] is None:
                found = execution_of(layer.module)
                self.executions[layer.name] = found or attach(
                    layer.module, network.mask(layer), network.of(layer).reach
                )
        travel(model)
        self.refresh()

    def refresh(self) -> None:
        """Take the masks of a topology update."""
        for layer in self._sparse_layers():
            self.executions[layer.name].update(self.network.mask(layer), self.network.of(layer).reach)

    def follow(self, window_open: bool) -> None:
        """Dense weight gradients inside a growth window, gradients at present weights only outside it."""
        for layer in self._sparse_layers():
            self.executions[layer.name].dense_gradient(window_open)
            # Outside windows the kernels leave exact zeros at missing weights: masking them again would be dense work.
            self.network.of(layer).arrives_masked = not window_open

    def off(self) -> None:
        """Back to dense compute with masked weights."""
        for layer in self._sparse_layers():
            self.executions[layer.name].detach()
            self.network.of(layer).arrives_masked = False
        self.executions = {}
        settle(self.model)

    def explain(self) -> list[Choice]:
        """One row per layer."""
        choices = []
        for layer in self.network.layers:
            mask = self.network.mask(layer)
            density = int(mask.count_nonzero()) / mask.numel()
            reason = self.reasons[layer.name]
            how = "sparse" if reason is None else "masked"
            choices.append(Choice(layer.name, density, how, reason or "native kernels"))
        return choices

    def _sparse_layers(self) -> list[Layer]:
        return [layer for layer in self.network.layers if layer.name in self.executions]


def _why_not(layer: Layer) -> str | None:
    if layer.rows is not None or not layer.parameter_name.endswith("weight"):
        return "only whole weights of linear and convolutional layers have sparse kernels"
    if execution_of(layer.module) is not None:
        return None
    return unsupported(layer.module)
