"""The last guard: whole training passes of candidate assignments, on a copy of the model and the recorded batch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from regrow.execution.choosing.measure import Timer
from regrow.execution.choosing.probe import autocast
from regrow.execution.modules.chwn import restore
from regrow.execution.modules.layers import Execution, execution_of

_HOOKS = (
    "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_state_dict_hooks",
    "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
)  # fmt: skip


def dense_copy(model: nn.Module) -> nn.Module:
    """A copy that computes dense and tells nobody: hooks are gone, but for torch's own (spectral norm computes weights in one)."""
    twin = copy.deepcopy(model)
    for module in twin.modules():
        if (execution := execution_of(module)) is not None:
            execution.detach()
        for name in _HOOKS:
            hooks = getattr(module, name)
            for key in [key for key, hook in hooks.items() if not _of_torch(hook)]:
                del hooks[key]
                for marks in ("_with_kwargs", "_always_called"):
                    getattr(module, f"{name}{marks}", {}).pop(key, None)
    restore(twin)
    return twin


def _of_torch(hook: Any) -> bool:
    return (getattr(hook, "__module__", None) or type(hook).__module__).split(".")[0] == "torch"


class Trial:
    """Times assignments against each other.

    Args:
        twin: a copy of the model, see :func:`dense_copy`.
        executions: the sparse execution of each layer of it that may be sparse.
        batch: arguments of the model.
        precision: the type of autocast, if it was on.
    """

    def __init__(
        self,
        twin: nn.Module,
        executions: Mapping[str, Execution],
        batch: tuple[tuple[Any, ...], dict[str, Any]],
        precision: torch.dtype | None,
    ) -> None:
        self._twin, self._executions, self._precision = twin, executions, precision
        # Own copies: a model may write into its input.
        self._args, self._kwargs = pytree.tree_map(lambda t: t.detach().clone() if isinstance(t, Tensor) else t, batch)
        self._parameters = [p for p in twin.parameters() if p.requires_grad]

    def prepare(self, sparse: frozenset[str]) -> None:
        """Build the lists of sparse layers, once per topology update in training, outside the measurement."""
        self._run(sparse)()

    def time(self, assignments: Mapping[str, frozenset[str]], timer: Timer) -> dict[str, float]:
        """Milliseconds of forward + backward outside growth windows."""
        ms = timer({f"whole model, {name}": self._run(sparse) for name, sparse in assignments.items()})
        return {name: ms[f"whole model, {name}"] for name in assignments}

    def _run(self, sparse: frozenset[str]) -> Callable[[], None]:
        def run() -> None:
            for name, execution in self._executions.items():
                execution.live = name in sparse
            with autocast(self._precision):
                outputs = self._twin(*self._args, **self._kwargs)
            ends = [t for t in pytree.tree_leaves(outputs) if isinstance(t, Tensor) and t.requires_grad]
            torch.autograd.grad(ends, self._parameters, [torch.ones_like(t) for t in ends], allow_unused=True)

        return run
