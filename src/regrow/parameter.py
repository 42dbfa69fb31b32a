"""One sparse parameter: its mask, and what happens to its gradient on the way to the optimizer."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from regrow.errors import ConfigurationError, ExecutionWarning, StateError
from regrow.execution.kernels.masking import mask_
from regrow.marks import Marks
from regrow.momentum import Group, Moments, family_of, shaped_slots
from regrow.support import Support


class SparseParameter:
    """A dense-shaped parameter with zeros outside its mask.

    The gradient is masked as it is accumulated, so that clipping, unscaling and averaging see present weights only. While
    ``collecting``, the unmasked gradient is kept beside it for growth. ``arrives_masked`` recognises gradients straight from sparse
    kernels, which are zero at missing weights already.
    """

    def __init__(self, name: str, parameter: nn.Parameter, optimizer: Optimizer, pure_gradient: bool) -> None:
        self.name, self.parameter = name, parameter
        self._optimizer = weakref.ref(optimizer)
        self._group_index = _find_group(optimizer, name, parameter)
        family, host = (family_of(optimizer, self.group(), pure) for pure in (pure_gradient, False))
        self.moments = Moments(parameter, family, self.state, self.group, host)
        self.collecting = False
        self.incoming: Tensor | None = None
        self.theta: Tensor | None = None
        self.shown: Callable[[], Tensor] | None = None
        self._arriving: tuple[Tensor, bool] | None = None
        self._masked: tuple[Tensor, int] | None = None
        self.reach: Support | None = None
        self.arrives_masked: Callable[[Tensor, Support], bool] | None = None
        self._clean_version = self._warned = -1
        self._swapped = False
        self._take(Support(torch.ones_like(parameter, dtype=torch.bool, requires_grad=False)))
        self._hooks = self._hook()

    def _hook(self) -> list[Any]:
        frozen = not self.parameter.requires_grad
        self.parameter.requires_grad_(True)  # a copy of a layer that is frozen just now needs its hooks too
        hooks = [
            self.parameter.register_hook(weakly(self._announce)),
            self.parameter.register_post_accumulate_grad_hook(weakly(self._accumulated)),
        ]
        self.parameter.requires_grad_(not frozen)
        return hooks

    @property
    def support(self) -> Support:
        """Which weights exist: replaced by a topology update, never changed."""
        return self._support

    @property
    def mask(self) -> Tensor:
        """Which weights exist, as a bool tensor. Read only."""
        return self._support.mask

    @mask.setter
    def mask(self, mask: Tensor) -> None:
        self.take_mask(mask)

    def take_mask(self, mask: Tensor | Marks) -> None:
        """Let other weights exist from now on; a dense mask is taken over."""
        self._take(Support(self._laid(mask.dense() if isinstance(mask, Marks) else mask)))
        # Written behind autograd's back otherwise: a backward through a pass with the old weights must be refused.
        torch.autograd.graph.increment_version(self.parameter)

    def _take(self, support: Support) -> None:
        # The kernels' view of the mask, on the same one byte per weight.
        self._support, self._bytes = support, support.mask.view(torch.uint8)
        self.moments.mask = support.mask

    @property
    def shape(self) -> torch.Size:
        """Of the layer's weight, missing entries included."""
        return self._support.shape

    @property
    def is_compact(self) -> bool:
        """Whether the parameter holds present weights only."""
        return False

    @property
    def reached(self) -> Support:
        """Which weights gradients reach: those that exist, unless a method's backward set is larger."""
        return self._support if self.reach is None else self.reach

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer that owns the parameter."""
        optimizer = self._optimizer()
        if optimizer is None:
            raise StateError(
                f"the optimizer of {self.name} is gone: keep a reference to it as long as its handle is in use"
            )
        return optimizer

    def state(self) -> dict[str, Any]:
        """The optimizer's state of this parameter."""
        return self.optimizer.state.get(self.parameter, {})

    def group(self) -> Group:
        """The parameter group, looked up anew: ``optimizer.load_state_dict`` exchanges the dictionaries."""
        return self.optimizer.param_groups[self._group_index]

    def rehook(self) -> None:
        """Hook in anew, with the methods of a class that has changed."""
        if self._hooks:
            self.detach()
            self._hooks = self._hook()

    def detach(self) -> None:
        """Remove the hooks."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    @property
    def trained(self) -> Tensor:
        """What the optimizer trains: the shadow weights where there are any, else the weights themselves."""
        return self.parameter.data if self.theta is None else self.theta

    def follow_layout(self) -> None:
        """Let everything that is walked beside the weight lie in memory as it does: mask, shadow weights, gradient, optimizer state."""
        self._take(self._support.lies_like(self.parameter))
        self.reach = None if self.reach is None else self.reach.lies_like(self.parameter)
        self.theta, self.parameter.grad = (
            None if tensor is None else self._laid(tensor) for tensor in (self.theta, self.parameter.grad)
        )
        for name, slot in shaped_slots(self.optimizer, self.parameter).items():
            self.optimizer.state[self.parameter][name] = self._laid(slot)

    def _laid(self, tensor: Tensor) -> Tensor:
        if tensor.stride() == self.parameter.stride():
            return tensor
        return torch.empty_like(self.parameter, dtype=tensor.dtype, requires_grad=False).copy_(tensor.detach())

    def mask_weight(self) -> None:
        """w <- w * mask; for shadow weights theta * mask, or what the method shows of theta."""
        if self.theta is not None:
            self.parameter.data.copy_(self.theta if self.shown is None else self.shown())
        mask_(self.parameter, self._bytes)
        self._swapped = False
        self.mark_clean()

    def mark_clean(self) -> None:
        """Missing weights are zero now."""
        self._clean_version = self.parameter._version

    @property
    def is_clean(self) -> bool:
        """Whether nobody wrote to the weights since missing ones were zero."""
        return self.parameter._version == self._clean_version

    def mask_state(self) -> None:
        """Zero what the optimizer remembers of missing weights, from steps before they were missing."""
        if self.theta is None:
            for slot in shaped_slots(self.optimizer, self.parameter).values():
                mask_(slot, self._bytes)

    def swap_in(self) -> None:
        """Show the optimizer the shadow weights."""
        if self.theta is not None:
            self._swapped = True
            self.parameter.data.copy_(self.theta)

    def swap_out(self) -> None:
        """Take the updated shadow weights back, those that received gradients."""
        if self.theta is not None:
            self.theta.copy_(torch.where(self.reached.mask, self.parameter.data, self.theta))

    def dense(self, tensor: Tensor) -> Tensor:
        """A tensor that is stored as the weights are, in the layer's shape."""
        return tensor

    def nonzeros(self) -> Tensor | Marks:
        """Where weights are not zero."""
        return self.parameter.data != 0

    def adopt_weight(self) -> None:
        """Let the present weights be what is trained."""
        if self.theta is not None:
            self.theta.copy_(self.parameter.data)

    def misfit(self) -> int:
        """How many weights are not what the mask (and the shadow weights, where there are any) make them."""
        if self.theta is not None:
            shown = self.theta if self.shown is None else self.shown()
            return int((self.parameter.data != shown * self.mask).count_nonzero())
        return int(((self.parameter.data != 0) & ~self.mask).count_nonzero())

    def outside(self) -> int:
        """How many weights lie outside the mask; counted only if somebody wrote to the weights."""
        if self.is_clean or self._swapped:
            return 0
        found = int(((self.parameter.detach() != 0) & ~self.mask).count_nonzero())
        if not found:
            self.mark_clean()
        return found

    def fits(self, weight: Tensor) -> bool:
        """Whether no weight lies outside the mask; a warning for each time they were written so that some do.

        ``weight`` is what the layer is about to compute with: another tensor than the parameter where that was replaced.
        """
        if weight is not self.parameter:
            return self.stranger_fits(weight)
        count = self.outside()
        if count and self._warned != self.parameter._version:
            self._warned = self.parameter._version
            warnings.warn(
                f"{count} weights of {self.name} lie outside its mask, so its layer computes dense, with all of them: load the "
                "handle's state with the weights, or take masks from the zeros (handle.masks_from_zeros())",
                ExecutionWarning,
                stacklevel=2,
            )
        return not count

    def stranger_fits(self, weight: Tensor) -> bool:
        """The same for a tensor in the parameter's place: of torch.func.functional_call, ``load_state_dict(assign=True)``, an assignment.

        It is looked at anew in every pass, and by itself is no mistake: a step with it is (see `regrow.attach`).
        """
        return weight.shape == self.mask.shape and not bool(((weight.detach() != 0) & ~self.mask).any())

    def receive(self) -> None:
        """Before the step: mask a gradient that was written since backward (clipped, noised, averaged, assigned by hand).

        One assigned by hand brings its own evidence, if it speaks about missing weights at all.
        """
        self._support.refuse_written(self.name)
        grad, (masked, version) = self.parameter.grad, self._masked or (None, 0)
        self._masked = None
        if grad is None or (grad is masked and grad._version == version):
            return
        replaced = grad is not masked
        if self.collecting and replaced and (self.incoming is None or bool((grad * ~self.mask).any())):
            self.incoming = _wide(grad).clone()
        self._mask_gradient(grad)

    def rescale(self) -> float:
        """By which factor the gradient was scaled between backward and step (unscaling, clipping, averaging).

        Missing weights' gradients get the same factor: <g_step, g_backward> / <g_backward, g_backward> over present weights. Terms added
        in between (noise, a hand-made penalty) hardly move it, as they hardly point along the gradient.
        """
        if self.incoming is None or self.parameter.grad is None:
            return 1.0
        present = self._support.positions
        arrived, stepped = (
            tensor.flatten().index_select(0, present) for tensor in (self.incoming, self.parameter.grad)
        )
        return factor_between(arrived, stepped)

    def _announce(self, grad: Tensor) -> None:
        # torch.autograd.grad comes by here too, without ever accumulating: nothing may be added up yet.
        if self.collecting:
            old, (masked, version) = self.parameter.grad, self._masked or (None, 0)
            untouched = old is not None and old is masked and old._version == version
            self._arriving = (grad.detach(), not untouched and (old is None or not bool(old.any())))

    def _accumulated(self, parameter: Tensor) -> None:
        overflowed = False
        if self._arriving is not None:
            arrived, anew = self._arriving
            # A gradient that starts anew (also one thrown away by zero_grad without a step) starts the sum anew.
            if self.incoming is None or anew:
                self.incoming = _wide(arrived).clone()
            else:
                self.incoming.add_(arrived)
            self._arriving = None
            overflowed = not bool(self.incoming.sum().isfinite())
        # What growth looks at must be seen by a gradient scaler, which lowers its scale and throws the step away.
        if parameter.grad is not None and not overflowed:
            if self.arrives_masked is None or not self.arrives_masked(parameter.grad, self.reached):
                self._mask_gradient(parameter.grad)
            self._masked = (parameter.grad, parameter.grad._version)

    def _mask_gradient(self, grad: Tensor) -> None:
        mask_(grad, self._bytes if self.reach is None else self.reach.mask.view(torch.uint8))


def factor_between(arrived: Tensor, stepped: Tensor) -> float:
    """<stepped, arrived> / <arrived, arrived>; nan where nothing arrived, exactly 1 where it is so but for rounding."""
    square = float(arrived.dot(arrived))
    product = float(arrived.dot(stepped.to(arrived.dtype)))
    factor = product / square if square > 0 else float("nan")
    noise = 4 * torch.finfo(stepped.dtype).eps
    return 1.0 if abs(factor - 1) <= noise else factor


def weakly(method: Callable[[Tensor], None]) -> Callable[[Tensor], None]:
    """The garbage collector does not see through hooks on tensors: a strong reference would keep every parameter alive."""
    reference = weakref.WeakMethod(method)

    def call(tensor: Tensor) -> None:
        if (alive := reference()) is not None:
            alive(tensor)

    return call


def _wide(grad: Tensor) -> Tensor:
    return grad.detach().to(torch.promote_types(grad.dtype, torch.float32))


def _find_group(optimizer: Optimizer, name: str, parameter: nn.Parameter) -> int:
    for index, group in enumerate(optimizer.param_groups):
        if any(p is parameter for p in group["params"]):
            return index
    raise ConfigurationError(
        f"the optimizer does not own {name}: build the optimizer from this model's parameters, keep the layer out of the "
        "scope with scope=Scope(dense=(...,)), or sparsify each part of the model with its own optimizer"
    )


def momentum_scales(parameters: list[SparseParameter]) -> dict[str, float]:
    """1 for every parameter if all smooth alike, else the factor that makes their momenta comparable."""
    families = [(p.moments.family, p.group()) for p in parameters]
    if len({(family, family.coefficient(group), family.gain(group)) for family, group in families}) == 1:
        return {p.name: 1.0 for p in parameters}
    return {p.name: p.moments.family.paper_scale(p.group()) for p in parameters}
