"""What happens around each optimizer step.

before      -> growth evidence; method extras; (RigL:) the topology update instead of the weight update
the update  -> the optimizer's own, or that of native kernels for present weights only
after       -> weights masked; method extras; step counted; topology update if due
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from regrow import allocator, attach
from regrow.extras import act
from regrow.rounds import cut_to_budget, remember_rewind

if TYPE_CHECKING:
    from regrow.handle import Handle
    from regrow.parameter import SparseParameter

_LARGE = 1 << 22  # present weights whose topology update takes more memory than a step


class Stepping:
    """One handle's optimizer steps, and what one leaves to be done after it."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._overflowed = False
        self._blank: list[nn.Parameter] = []
        self._withheld: list[tuple[nn.Parameter, Tensor | None]] = []
        self._stepped: list[SparseParameter] = []

    @torch.no_grad()
    def before(self) -> None:
        """When the gradients are ready, before the optimizer uses them."""
        handle, optimizer = self._handle, self._handle.optimizer
        found = getattr(optimizer, "found_inf", None)
        self._overflowed = found is not None and float(found) != 0
        for sparse in handle.parameters:
            sparse.receive()
        if self._overflowed:
            stepped = [p for group in optimizer.param_groups for p in group["params"]]
            self._blank = [p for p in stepped if not optimizer.state.get(p)]
            return
        if handle.network.prices is not None:
            handle.network.prices.take()
        if handle.window.is_open:
            handle.window.collect(optimizer)
        # A fused optimizer unscales inside its step; what methods add has the gradient's true scale.
        scale = getattr(optimizer, "grad_scale", None)
        handle.trained.pull(scale)
        for sparse in handle.parameters:
            sparse.swap_in()
        act(handle.network, handle.method.adjust, handle.step, gradients=True, scale=scale)
        if self._due("instead"):
            self._update()
            self._withhold(p for group in optimizer.param_groups for p in group["params"])
        elif handle.method.perturb is None and attach.acts_last(optimizer, handle.hooks):
            self._stepped = handle.switch.step_present()
            self._withhold(sparse.parameter for sparse in self._stepped)

    @torch.no_grad()
    def after(self) -> None:
        """After the optimizer's update: mask, count, and update the topology if due."""
        handle = self._handle
        attach.act_last(handle.optimizer, handle.hooks)
        for sparse in handle.parameters:
            sparse.incoming = None
        if self._overflowed:
            self._undo_overflow()
            return
        for parameter, grad in self._withheld:
            parameter.grad = grad
        self._withheld = []
        for sparse in handle.parameters:
            sparse.swap_out()
        handle.trained.step()
        act(handle.network, handle.method.perturb, handle.step)
        for sparse in handle.parameters:
            if sparse not in self._stepped:
                sparse.mask_weight()
        self._stepped = []
        handle.step += 1
        remember_rewind(handle)
        outcome = handle.method.outcome
        if outcome is not None and handle.step == outcome.cuts_at(handle.settings.steps):
            cut_to_budget(handle, outcome)
        elif self._due("after"):
            self._update()
        self.look_ahead()

    def look_ahead(self) -> None:
        """Between steps: open or close the growth window, and let layers compute accordingly."""
        handle = self._handle
        handle.window.look_ahead(handle.step)
        handle.switch.follow(handle.window.is_open)

    def _undo_overflow(self) -> None:
        """Fused SGD leaves uninitialised momentum behind if its very first step overflows: no step leaves no state."""
        state = self._handle.optimizer.state
        for parameter in self._blank:
            if "momentum_buffer" in state.get(parameter, {}):
                del state[parameter]
        self._blank = []

    def _due(self, phase: str) -> bool:
        handle = self._handle
        clock = None if handle.finished else handle.settings.clock
        return clock is not None and clock.when.phase == phase and clock.due(handle.step)

    def _update(self) -> None:
        handle = self._handle
        attach.refuse_replaced(handle.model, handle.parameters)
        large = handle.settings.storage == "compact" and handle.nonzeros >= _LARGE
        with allocator.returning() if large else nullcontext():
            update = handle.network.open_update(handle.step)
            if update.layers:  # else all are frozen
                handle.network.commit(update, handle.method.update(update), handle.window.always_open(handle.step))
            del update
        handle.window.close(handle.step)

    def _withhold(self, parameters: Iterable[nn.Parameter]) -> None:
        """Parameters without a gradient are skipped by every optimizer; they get it back after the step."""
        for parameter in parameters:
            self._withheld.append((parameter, parameter.grad))
            parameter.grad = None
