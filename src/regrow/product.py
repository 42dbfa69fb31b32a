"""Layers whose whole product is the method's in training: local reparametrisation, with gradients for side parameters.

Gradients of side parameters are collected beside the weight's own and share its fate: they start anew where it does (whoever cleared
it), get its scaling between backward and step, and are averaged over ranks.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from regrow.errors import UnsupportedError
from regrow.weighting import Product, Trained

if TYPE_CHECKING:
    from regrow.weights import TrainedWeights

_ATTRIBUTE = "_regrow_product"


class _Noisy(nn.Module):
    """Mixin: in training mode the layer computes what its method says."""

    def forward(self, x: Tensor) -> Tensor:
        """The method's product in training, the layer's own in evaluation, and in copies of the model."""
        reference: LayerProduct | None = self.__dict__.get(_ATTRIBUTE)
        trained = None if reference is None else reference.alive()
        if not self.training or reference is None or trained is None:
            return super().forward(x)
        return reference(x, trained)


class NoisyLinear(_Noisy, nn.Linear):
    """``nn.Linear`` with a product of its method's; made by :meth:`LayerProduct.attach`, not constructed."""


class NoisyConv2d(_Noisy, nn.Conv2d):
    """``nn.Conv2d`` with a product of its method's; made by :meth:`LayerProduct.attach`, not constructed."""


_CLASSES: dict[type[nn.Module], type[nn.Module]] = {nn.Linear: NoisyLinear, nn.Conv2d: NoisyConv2d}


def refuse_unfit(method: str, modules: dict[str, nn.Module]) -> None:
    """An error for a layer whose product cannot be exchanged."""
    for name, module in modules.items():
        if type(module) not in (*_CLASSES, *_CLASSES.values()):
            raise UnsupportedError(
                f"method {method!r} computes the products of nn.Linear and nn.Conv2d only; {name} is a {type(module).__name__}: "
                f"keep it dense with scope=Scope(dense=('{name}',)), or choose another method"
            )


class LayerProduct:
    """One layer's product, and the gradients of its side parameters on their way to the step."""

    def __init__(self, trained: TrainedWeights | None = None, index: int = 0, module: nn.Module | None = None) -> None:
        self._trained = None if trained is None else weakref.ref(trained)
        self.index, self._module = index, None if module is None else weakref.ref(module)
        self.calls = 0
        self.pending: list[dict[str, Tensor]] = []
        self._arriving: tuple[list[dict[str, Tensor]], bool] | None = None
        self._sums: dict[str, Tensor] = {}
        self._arrived: Tensor | None = None

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """A copy of the model, or one out of a pickle, is a plain one."""
        return LayerProduct, ()

    def alive(self) -> TrainedWeights | None:
        """What is trained, as long as somebody trains it."""
        return None if self._trained is None else self._trained()

    @property
    def module(self) -> Any:
        """The layer's module."""
        module = None if self._module is None else self._module()
        if module is None:
            raise ReferenceError("the module of this product is gone")
        return module

    def attach(self) -> list[Any]:
        """Let the module compute through this, and watch its weight's gradient; returns removable hooks."""
        module = self.module
        module.__class__ = _CLASSES.get(type(module), type(module))
        module.__dict__[_ATTRIBUTE] = self
        weight = module.weight
        return [weight.register_hook(self._announce), weight.register_post_accumulate_grad_hook(self._accumulated)]

    def detach(self) -> None:
        """Let the module compute as before."""
        module = self.module
        module.__class__ = {noisy: plain for plain, noisy in _CLASSES.items()}.get(type(module), type(module))
        module.__dict__.pop(_ATTRIBUTE, None)

    def __call__(self, x: Tensor, trained: TrainedWeights) -> Tensor:
        """The product of this call."""
        module = self.module
        view = trained.view(self.index, leaf=True)
        call, self.calls = self.calls, self.calls + 1

        def compute(x: Tensor, bias: Tensor | None) -> Tensor:
            product = trained.weighting.product  # type: ignore[union-attr]  # attached because there is one
            draw = trained.noise(self.index, call)
            return product(Product(x, bias, view, _multiplier(module), draw))  # type: ignore[misc]

        return _Local.apply(self, compute, view, x, module.weight, module.bias)

    def _announce(self, grad: Tensor) -> None:
        old = self.module.weight.grad
        self._arriving = (self.pending, old is None or not bool(old.any()))
        self.pending = []

    def _accumulated(self, weight: Tensor) -> None:
        if self._arriving is None or weight.grad is None:
            return
        parts, anew = self._arriving
        sums = {} if anew else self._sums
        for part in parts:
            for name, grad in part.items():
                sums[name] = sums[name] + grad if name in sums else grad
        self._sums, self._arriving = sums, None
        self._arrived = weight.grad.clone()

    def collect(self, usual: float | None) -> dict[str, Tensor]:
        """The side gradients of this step, scaled as the weight's was since backward; ``usual`` where that cannot be told."""
        factor = self.factor()
        factor = (usual if usual is not None else 1.0) if factor is None else factor
        found, self._sums, self._arrived, self.calls = self._sums, {}, None, 0
        self.pending = []
        return {name: grad if factor == 1.0 else grad * factor for name, grad in found.items()}

    def factor(self) -> float | None:
        """By which factor the weight's gradient was scaled between backward and step; None if it is zero."""
        grad = self.module.weight.grad
        if self._arrived is None or grad is None:
            return None
        arrived, stepped = self._arrived.double().flatten(), grad.double().flatten()
        square = float(arrived.dot(arrived))
        factor = float(arrived.dot(stepped)) / square if square > 0 else math.nan
        if not math.isfinite(factor):
            return None
        return 1.0 if abs(factor - 1) <= 4 * torch.finfo(grad.dtype).eps else factor


class _Local(torch.autograd.Function):
    """A product with its own graph inside: the gradient of theta goes to the weight, those of side parameters are kept."""

    @staticmethod
    def forward(
        ctx: Any,
        layer: LayerProduct,
        compute: Callable[[Tensor, Tensor | None], Tensor],
        view: Trained,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
    ) -> Tensor:
        with torch.enable_grad():
            inputs = x.detach().requires_grad_(x.requires_grad)
            offset = None if bias is None else bias.detach().requires_grad_(bias.requires_grad)
            out = compute(inputs, offset)
        ctx.kept = (layer, view, inputs, offset, out)
        return out.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        layer, view, x, bias, out = ctx.kept
        names = list(view.side)
        wanted = [x, view.theta, *([] if bias is None else [bias]), *view.side.values()]
        asked = [tensor for tensor in wanted if tensor.requires_grad]
        found = dict(zip(map(id, asked), _gradients(out, asked, grad), strict=True))
        if ctx.needs_input_grad[4]:
            layer.pending.append({name: found[id(view.side[name])] for name in names})
        theta = found.get(id(view.theta)) if ctx.needs_input_grad[4] else None
        given = None if theta is None else theta.to(layer.module.weight.dtype)
        return None, None, None, found.get(id(x)), given, None if bias is None else found.get(id(bias))


def _gradients(out: Tensor, asked: Sequence[Tensor], grad: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(out, asked, grad.to(out.dtype), retain_graph=True, materialize_grads=True)


def _multiplier(module: Any) -> Callable[[Tensor, Tensor, Tensor | None], Tensor]:
    if isinstance(module, nn.Linear):
        return nn.functional.linear
    return module._conv_forward
