"""Which layers of a sparsified model compute on sparse kernels, kept in step with masks and growth windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import nn

from regrow.errors import UnsupportedError, unknown

if TYPE_CHECKING:
    from regrow.execution.layers import Execution
    from regrow.network import SparseNetwork
    from regrow.parameter import SparseParameter
    from regrow.scope import Layer

EXECUTIONS = ("masked", "sparse")


def check_execution(execution: str) -> None:
    """Refuse an unknown execution, and a sparse one where the kernels are missing."""
    if execution not in EXECUTIONS:
        raise unknown("execution", execution, EXECUTIONS)
    if execution == "sparse":
        from regrow.execution.native import available

        if not available():
            raise UnsupportedError(
                "execution='sparse' needs the native kernels, which are not built here: install regrow with a C++17 compiler "
                "at hand, or use execution='masked'"
            )


@dataclass(frozen=True)
class Choice:
    """How one layer is computed, and why."""

    layer: str
    density: float
    execution: str
    reason: str


class Switch:
    """Computes layers ``masked`` (dense, any device) or ``sparse`` (native kernels, wherever a layer can have them)."""

    def __init__(self, network: SparseNetwork) -> None:
        self.network = network
        self.execution = "masked"
        self.native_step = True
        self._model: nn.Module | None = None
        self._sparse: dict[str, Execution] = {}
        self._reasons: dict[str, str] = {}
        network.mask_listeners.append(self.refresh)

    def choose(self, execution: str, model: nn.Module) -> None:
        """Switch all layers of ``model``."""
        check_execution(execution)
        self._off()
        if execution == "sparse":
            self._on(model)
        self.execution = execution

    def refresh(self) -> None:
        """Take the masks after a topology update."""
        for layer in self._sparse_layers():
            self._sparse[layer.name].update(self.network.mask(layer), self.network.of(layer).reach)

    def follow(self, window_open: bool) -> None:
        """Dense weight gradients inside a growth window, gradients at present weights only outside it."""
        for layer in self._sparse_layers():
            self._sparse[layer.name].dense_gradient(window_open)
            # Outside windows the kernels leave exact zeros at missing weights: masking them again would be dense work.
            self.network.of(layer).arrives_masked = not window_open

    def step_present(self) -> list[SparseParameter]:
        """Update sparse layers natively, present weights only, where the optimizer's arithmetic is known; returns whose it was.

        Mostly missing weights make it worth it, and only weights that nobody wrote to since they were masked: the step leaves the
        missing ones untouched.
        """
        from regrow.execution.optimizer import step_present, steps_natively

        optimizer = self.network.parameters[0].optimizer
        if not self._sparse or not self.native_step or not steps_natively(optimizer):
            return []
        stepped = []
        for layer in self._sparse_layers():
            sparse, pattern = self.network.of(layer), self._sparse[layer.name].pattern
            worth = 2 * pattern.nnz <= pattern.mask.numel() and sparse.theta is None and sparse.is_clean
            if worth and step_present(optimizer, sparse.parameter, sparse.group(), pattern):
                sparse.mark_clean()
                stepped.append(sparse)
        return stepped

    def explain(self) -> list[Choice]:
        """One row per layer."""
        choices = []
        for layer in self.network.layers:
            mask = self.network.mask(layer)
            how = "sparse" if layer.name in self._sparse else "masked"
            reason = "native kernels" if how == "sparse" else self._reasons.get(layer.name, "execution is 'masked'")
            choices.append(Choice(layer.name, int(mask.count_nonzero()) / mask.numel(), how, reason))
        return choices

    def _on(self, model: nn.Module) -> None:
        from regrow.execution.layers import attach, execution_of
        from regrow.execution.travel import travel

        for layer in self.network.layers:
            reason = _why_not(layer)
            if reason is None:
                mask, reach = self.network.mask(layer), self.network.of(layer).reach
                self._sparse[layer.name] = execution_of(layer.module) or attach(layer.module, mask, reach)
            else:
                self._reasons[layer.name] = reason
        travel(model)
        self._model = model
        self.refresh()

    def _off(self) -> None:
        from regrow.execution.travel import settle

        for layer in self._sparse_layers():
            self._sparse[layer.name].detach()
            self.network.of(layer).arrives_masked = False
        self._sparse, self._reasons = {}, {}
        if self._model is not None:
            settle(self._model)
            self._model = None

    def _sparse_layers(self) -> list[Layer]:
        return [layer for layer in self.network.layers if layer.name in self._sparse] if self._sparse else []


def _why_not(layer: Layer) -> str | None:
    from regrow.execution.layers import execution_of, unsupported

    if layer.rows is not None or not layer.parameter_name.endswith("weight"):
        return "only whole weights of linear and convolutional layers have sparse kernels"
    return None if execution_of(layer.module) is not None else unsupported(layer.module)
