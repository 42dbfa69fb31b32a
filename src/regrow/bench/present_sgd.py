"""SGD whose step costs O(non-zeros) in layers on sparse kernels, and is torch's elsewhere."""

from __future__ import annotations

import torch
from torch import nn

from regrow.execution import execution_of
from regrow.execution.optimizer import sgd_step


class PresentSGD:
    """For benchmarks: the same arithmetic as `torch.optim.SGD` on present weights; missing ones stay zero."""

    def __init__(self, model: nn.Module, **options: float | bool) -> None:
        self.options = options
        found = [(module, execution_of(module)) for module in model.modules()]
        self._layers = [(module.weight, execution.pattern) for module, execution in found if execution is not None]
        self._buffers: list[torch.Tensor] = []
        native = {id(weight) for weight, _ in self._layers}
        self._rest = torch.optim.SGD([p for p in model.parameters() if id(p) not in native], **options)

    @torch.no_grad()
    def step(self) -> None:
        """One step from the gradients at hand."""
        first = not self._buffers
        if first:
            self._buffers = [torch.zeros_like(weight) for weight, _ in self._layers]
        for (weight, pattern), buffer in zip(self._layers, self._buffers, strict=True):
            sgd_step(weight, weight.grad, buffer, pattern, first_step=first, **self.options)
        self._rest.step()
