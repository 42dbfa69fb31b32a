"""Forward + backward of single modules on random inputs in either layout: what is timed."""

from __future__ import annotations

import copy
from functools import cached_property

import torch
from torch import Tensor, nn

from regrow.execution.choosing.record import Call
from regrow.execution.kernels.layout import to_chwn
from regrow.execution.kernels.pattern import MOST_LANES
from regrow.execution.modules.chwn import use_chwn
from regrow.execution.modules.layers import attach
from regrow.scope import is_linear


def ordinary(x: Tensor, channels_last: bool) -> Tensor:
    """`x` as the dense model keeps it."""
    return x.contiguous(
        memory_format=torch.channels_last if channels_last and x.dim() == 4 else torch.contiguous_format
    )


def in_chwn(x: Tensor, module: nn.Module) -> Tensor:
    """`x` as a sparse layer before `module` would leave it; linear layers see every leading dimension as samples."""
    if is_linear(module) and x.dim() > 2:
        return to_chwn(x.reshape(-1, x.shape[-1])).reshape(x.shape)
    return to_chwn(x) if x.dim() >= 2 else x


def random_input(call: Call) -> Tensor:
    """An input of the recorded shape, without touching the global generator."""
    return torch.randn(call.shape, generator=torch.Generator().manual_seed(0)).to(call.dtype)


class Probe:
    """One module in one layout: calling it runs forward and backward once. Nothing is built before :meth:`prepare` or the first call.

    Args:
        module: copied, so that nothing happens to it.
        call: what it gets in training.
        chwn: whether its input is in CHWN.
        channels_last: how the dense model keeps images.
        mask: run on sparse kernels with this mask; None runs dense.
        reach: where weight gradients are wanted, default the mask.
        dense_gradient: as inside a growth window.
    """

    def __init__(
        self,
        module: nn.Module,
        call: Call,
        chwn: bool,
        channels_last: bool,
        mask: Tensor | None = None,
        reach: Tensor | None = None,
        dense_gradient: bool = False,
    ) -> None:
        self._original, self._call, self._chwn, self._channels_last = module, call, chwn, channels_last
        self._mask, self._reach, self._dense_gradient = mask, reach, dense_gradient

    @cached_property
    def _module(self) -> nn.Module:
        module = copy.deepcopy(self._original)
        if self._mask is not None:
            attach(module, self._mask, self._reach).dense_gradient(self._dense_gradient)
        elif self._chwn:
            use_chwn(module)
        return module

    @cached_property
    def _input(self) -> Tensor:
        x = random_input(self._call)
        x = in_chwn(x, self._original) if self._chwn else ordinary(x, self._channels_last)
        return x.requires_grad_(self._call.needs_gradient)

    def prepare(self) -> None:
        """Build the input and, by a run with few samples, the lists of sparse kernels, which serve until the next topology update."""
        few = (
            MOST_LANES if isinstance(self._original, nn.Conv1d | nn.Conv2d) else 1
        )  # lists of these may be for few samples alone
        first = self._input.detach()[:few].requires_grad_(self._call.needs_gradient)
        if self._mask is not None and first.dim() >= 2:
            self._run(first)

    def __call__(self) -> None:
        """Forward and, where anything needs a gradient, backward."""
        self._run(self._input)

    def _run(self, x: Tensor) -> None:
        with autocast(self._call.autocast):
            y = self._module(x)
        wanted = [t for t in (x, *self._module.parameters()) if t.requires_grad]
        if wanted:
            torch.autograd.grad(y, wanted, torch.ones_like(y))


class Conversion:
    """Bringing an activation into a layout, and its gradient back out of it."""

    def __init__(self, module: nn.Module, call: Call, enters: bool, channels_last: bool) -> None:
        self._module, self._call, self._enters, self._channels_last = module, call, enters, channels_last

    @cached_property
    def _both(self) -> tuple[Tensor, Tensor]:
        x = random_input(self._call)
        return ordinary(x, self._channels_last), in_chwn(x, self._module)

    def prepare(self) -> None:
        """Build both tensors."""
        _ = self._both

    def __call__(self) -> None:
        """There and, where a gradient flows, back."""
        here, there = self._both
        if self._enters or self._call.needs_gradient:
            in_chwn(here, self._module)
        if not self._enters or self._call.needs_gradient:
            ordinary(there, self._channels_last)


def autocast(dtype: torch.dtype | None) -> torch.autocast:
    """The precision of a recorded call."""
    return torch.autocast("cpu", dtype=dtype, enabled=dtype is not None)
