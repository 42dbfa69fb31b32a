"""Which layers of a sparsified model compute on sparse kernels, kept in step with masks and growth windows."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import nn

from regrow import native
from regrow.arguments import EXECUTIONS
from regrow.compact import compact, expand
from regrow.errors import UnsupportedError, unknown
from regrow.execution.choosing import measure
from regrow.execution.choosing.auto import Auto, Verdict
from regrow.execution.choosing.explanation import Choice, Explanation
from regrow.execution.choosing.measure import Timer
from regrow.execution.choosing.reasons import explain
from regrow.execution.kernels.operand import watch
from regrow.execution.kernels.optimizer import step_present, steps_natively
from regrow.execution.modules.chwn import restore, use_chwn
from regrow.execution.modules.entrance import ChwnConv2d
from regrow.execution.modules.layers import Execution, attach, execution_of, unsupported

if TYPE_CHECKING:
    from regrow.network import SparseNetwork
    from regrow.parameter import SparseParameter
    from regrow.scope import Layer


def check_execution(execution: str) -> None:
    """Refuse an unknown execution, and a sparse one where the kernels are missing."""
    if execution not in EXECUTIONS:
        raise unknown("execution", execution, EXECUTIONS)
    if execution == "sparse" and not native.available():
        raise UnsupportedError(
            "execution='sparse' needs the native kernels, which are not built here: install regrow with a C++17 compiler "
            "at hand, or use execution='masked' or 'auto'"
        )


class Switch:
    """Computes layers ``masked`` (dense, any device), ``sparse`` (native kernels, wherever a layer can have them) or ``auto``.

    Args:
        network: the layers and their masks.
        in_windows: fraction of steps inside growth windows, now.
    """

    def __init__(self, network: SparseNetwork, in_windows: Callable[[], float]) -> None:
        self.network = network
        self.execution = "masked"
        self.native_step = True
        self.auto: Auto | None = None
        self.timer: Timer | None = None
        self._in_windows = in_windows
        self._model: nn.Module | None = None
        self._sparse: dict[str, Execution] = {}
        self._reasons: dict[str, str] = {}
        network.mask_listeners.append(self.refresh)

    def claim(self, model: nn.Module) -> None:
        """Forget sparse execution under a handle that is no more, as in a network that comes out of a pickle."""
        strange = [layer for layer in self.network.layers if not self.network.of(layer).is_compact]
        left = [found for layer in strange if (found := execution_of(layer.module)) is not None]
        for execution in left:
            execution.detach()
        if left:
            restore(model)

    def choose(self, execution: str, model: nn.Module) -> None:
        """Switch all layers of ``model``; ``auto`` decides after the next training step."""
        check_execution(execution)
        self._refuse_dense(execution)
        self.release()
        self.execution = execution
        if execution == "masked":
            return
        self._model = model
        self._reasons = {layer.name: reason for layer in self.network.layers if (reason := why_not(layer)) is not None}
        able = [layer for layer in self.network.layers if layer.name not in self._reasons]
        if execution == "sparse":
            self._compute_sparse(layer.name for layer in able)
        else:
            self.auto = self._automatic(model, able)

    def refresh(self) -> None:
        """Take the masks after a topology update."""
        for layer in self._sparse_layers():
            sparse = self.network.of(layer)
            self._sparse[layer.name].update(sparse.support, sparse.reach)
        if self.auto is not None:
            self.auto.masks_changed()

    def follow(self, window_open: bool) -> None:
        """Between steps: decide if that is due; dense weight gradients inside a growth window, at present weights only outside."""
        if self.auto is not None and self.auto.decide() and self.auto.verdict is not None:
            self._compute_sparse(self.auto.verdict.sparse)
        for layer in self._sparse_layers():
            self._sparse[layer.name].dense_gradient(window_open)
            # The kernels' own gradients have exact zeros at missing weights: masking them again would be dense work.
            if not self.network.of(layer).is_compact:
                self.network.of(layer).arrives_masked = self._sparse[layer.name].buffer.holds

    def step_present(self) -> list[SparseParameter]:
        """Update sparse layers natively, present weights only, where the optimizer's arithmetic is known; returns whose it was.

        Only weights that nobody wrote to since they were masked: the step leaves the missing ones untouched. Dense layers too, since
        torch rounds the last few numbers of a tensor otherwise than the rest: storages would differ there.
        """
        optimizer = self.network.parameters[0].optimizer
        if not self._sparse or not self.native_step or not steps_natively(optimizer):
            return []
        able = []
        for layer in self._sparse_layers():
            sparse = self.network.of(layer)
            if sparse.theta is None and sparse.is_clean:
                able.append(sparse)
        flags = step_present(optimizer, [(each.parameter, each.group(), each.support) for each in able])
        stepped = [sparse for sparse, done in zip(able, flags, strict=True) if done]
        for sparse in stepped:
            sparse.mark_clean()
        return stepped

    def explain(self) -> Explanation:
        """One row per layer."""
        densities = {layer.name: self.network.density(layer) for layer in self.network.layers}
        if self.auto is not None:
            return self._with_hints(explain(self.auto, densities, self._reasons))
        rows = (Choice(layer.name, densities[layer.name], *self._way(layer)) for layer in self.network.layers)
        return self._with_hints(Explanation(tuple(rows), f"execution: {self.execution}"))

    def _way(self, layer: Layer) -> tuple[str, str]:
        """How a layer is computed, and why."""
        if layer.name not in self._sparse:
            return "masked", self._reasons.get(layer.name, "execution is 'masked'")
        dtype = layer.parameter.dtype
        if dtype not in native.SUFFIX:
            return "masked", f"its weight was converted to {dtype}, which has no kernels"
        return "sparse", "native kernels"

    def _with_hints(self, table: Explanation) -> Explanation:
        """Say where activations left the kernels' layout before a sparse layer."""
        places = {name: execution.left_layout for name, execution in self._sparse.items() if execution.left_layout}
        rows = (
            replace(row, reason=f"{row.reason}; its input left the layout in {places[row.layer]}")
            if row.layer in places
            else row
            for row in table
        )
        return replace(table, rows=tuple(rows))

    @property
    def verdicts(self) -> int:
        """How often ``auto`` decided in this process."""
        return 0 if self.auto is None else self.auto.count

    def state(self) -> dict[str, Any]:
        """What a resumed run needs to compute the same way: plain data."""
        auto = self.auto
        verdict = None if auto is None or auto.verdict is None else auto.verdict.as_dict()
        return {"execution": self.execution, "pending": auto is not None and auto.pending, "decision": verdict}

    def restore(self, state: dict[str, Any] | None) -> None:
        """Keep a saved verdict, where both the saved run and this one are ``auto``."""
        if self.auto is None or state is None or state["execution"] != "auto":
            return
        verdict = None if state["decision"] is None else Verdict.from_dict(state["decision"])
        self.auto.restore(verdict, state["pending"])
        self._compute_sparse(() if verdict is None else verdict.sparse - set(self._reasons))

    def _automatic(self, model: nn.Module, able: list[Layer]) -> Auto:
        return Auto(self.network, model, able, self._in_windows, self.timer or measure.milliseconds)

    def _compute_sparse(self, names: Iterable[str]) -> None:
        """Exactly these layers on sparse kernels; modules between them keep the CHWN layout."""
        wanted = set(names)
        for layer in self.network.layers:
            if layer.name in wanted:
                sparse = self.network.of(layer)
                execution = execution_of(layer.module) or attach(layer.module, sparse.support, sparse.reach)
                # Data parallelism lays its buckets of gradients out once, in the order of the weights.
                if self.network.ranks.size == 1:
                    execution.take_weight()
                sparse.follow_layout()
                if self.network.settings.storage == "compact":
                    execution.use_compact()
                    compact(sparse, execution.pattern.geometry.groups, self.network.ranks)
                    execution.owner = weakref.ref(sparse)  # type: ignore[assignment]
                execution.update(sparse.support, sparse.reach)
                execution.fits, execution.name = sparse.fits, layer.name
                watch(sparse.parameter, sparse)
                self._sparse[layer.name] = execution
            elif layer.name in self._sparse:
                execution = self._sparse.pop(layer.name)
                if execution.only_compact:
                    execution.owner, execution.fits = None, None
                    continue
                expand(self.network.of(layer))
                execution.detach()
                self.network.of(layer).arrives_masked = None
                self.network.of(layer).follow_layout()
        if self._model is None:
            return
        if wanted:
            use_chwn(self._model, self._entrances(self._model, wanted))
        else:
            restore(self._model)

    def _entrances(self, model: nn.Module, sparse: set[str]) -> list[nn.Conv2d]:
        """Dense convolutions outside the scope; where others are dense too, nobody knows whether theirs is the next."""
        maps = (layer for layer in self.network.layers if not isinstance(layer.module, nn.Linear))
        if any(layer.name not in sparse for layer in maps):
            return []
        mine = {layer.module for layer in self.network.layers}
        found = (m for m in model.modules() if isinstance(m, nn.Conv2d) and type(m) in (nn.Conv2d, ChwnConv2d))
        return [m for m in found if m not in mine]

    def _refuse_dense(self, execution: str) -> None:
        for layer in self.network.layers:
            found = execution_of(layer.module)
            if execution != "sparse" and found is not None and found.only_compact and self.network.of(layer).is_compact:
                raise UnsupportedError(
                    f"layer {layer.name} exists only sparse, of shape {tuple(layer.shape)}: its execution is 'sparse'"
                )

    def release(self) -> None:
        """Let all layers compute dense, but for those that cannot."""
        if self.auto is not None:
            self.auto.stop()
            self.auto = None
        self._compute_sparse(())
        self._reasons, self._model = {}, None

    def _sparse_layers(self) -> list[Layer]:
        return [layer for layer in self.network.layers if layer.name in self._sparse] if self._sparse else []


def why_not(layer: Layer) -> str | None:
    """Why a layer cannot run on the sparse kernels, or None if it can."""
    if layer.rows is not None or not layer.parameter_name.endswith("weight"):
        return "only whole weights of linear and convolutional layers have sparse kernels"
    return None if execution_of(layer.module) is not None else unsupported(layer.module)
