"""What data say of a network before it is pruned: statistics streamed over batches, in evaluation mode."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from regrow import randomness
from regrow.errors import ConfigurationError, NonFiniteError, UnsupportedError
from regrow.scope import Layer
from regrow.uses import evaluation_mode

Batches = Iterable[tuple[Tensor, Tensor]]
Curvature = Literal["obd", "fisher", "empirical"]
_WEIGHTED = (nn.Linear, nn.Conv2d)
_MEANS = (nn.AvgPool1d, nn.AvgPool2d)
_SMOOTH = (nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU, nn.ELU, nn.LeakyReLU, nn.Softplus)
# Their derivative is 0 or 1, so that its square is itself.
_PIECEWISE = (nn.ReLU, nn.MaxPool1d, nn.MaxPool2d, nn.Flatten, nn.Dropout, nn.Dropout2d, nn.Identity)


def batches_of(calibration: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """The batches of a calibration: an iterable of (inputs, targets), or a function that returns one."""
    source = calibration() if callable(calibration) else calibration
    for batch in source:
        if not (isinstance(batch, (tuple, list)) and len(batch) == 2):
            raise ConfigurationError("calibration must give pairs (inputs, targets)")
        yield batch[0], batch[1]


def second_moments(
    model: nn.Module, layers: Sequence[Layer], calibration: Any, average: Callable[[Tensor], Tensor]
) -> list[Tensor]:
    """Y^T Y / n of each layer's inputs with a 1 appended, in float64; patches for convolutions."""
    sums: dict[int, Tensor] = {}
    counts: dict[int, int] = {}

    def look(index: int, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        rows = rows_of(module, inputs[0]).double()
        rows = torch.cat([rows, rows.new_ones(len(rows), 1)], dim=1)
        sums[index] = sums.get(index, 0) + rows.T @ rows
        counts[index] = counts.get(index, 0) + len(rows)

    modules = enumerate(layer.module for layer in layers)
    hooks = [module.register_forward_pre_hook(functools.partial(look, i)) for i, module in modules]
    try:
        with evaluation_mode(model), torch.no_grad():
            for inputs, _ in batches_of(calibration):
                model(inputs)
    finally:
        for hook in hooks:
            hook.remove()
    if missing := [layer.name for i, layer in enumerate(layers) if i not in sums]:
        raise ConfigurationError(f"calibration never reaches layer {missing[0]}: give batches that the model trains on")
    return [_finite(average(sums[i] / counts[i]), layers[i].name) for i in range(len(layers))]


def refuse_without_moments(layers: Sequence[Layer]) -> None:
    """An error for a layer whose inputs have no second moment here."""
    for layer in layers:
        module = layer.module
        plain = isinstance(module, nn.Conv2d) and module.groups == 1 and not isinstance(module.padding, str)
        if not plain and not isinstance(module, nn.Linear):
            raise UnsupportedError(
                f"inputs of {layer.name}, a {type(module).__name__}, have no second moment here: linear layers and ungrouped 2-d "
                f"convolutions with padding in numbers have one. Keep it dense with scope=Scope(dense=('{layer.name}',)), or choose "
                "another method"
            )


def rows_of(module: nn.Module, x: Tensor) -> Tensor:
    """The inputs of a linear layer or an ungrouped 2-d convolution as a matrix [products, weights of a unit]."""
    if isinstance(module, nn.Conv2d):
        patches = nn.functional.unfold(x, module.kernel_size, module.dilation, module.padding, module.stride)  # type: ignore[arg-type]
        return patches.movedim(1, 2).reshape(-1, patches.shape[1])
    return x.reshape(-1, x.shape[-1])


def curvature(
    kind: Curvature, model: nn.Module, layers: Sequence[Layer], calibration: Any, average: Callable[[Tensor], Tensor]
) -> list[Tensor]:
    """The diagonal of the Hessian of the mean cross-entropy, as LeCun's recursion or the Fisher matrix has it."""
    weights = [layer.parameter for layer in layers]
    totals, count = [torch.zeros(w.shape, dtype=torch.float64, device=w.device) for w in weights], 0
    with evaluation_mode(model), torch.enable_grad(), _squared(model) if kind == "obd" else _plain():
        for number, (inputs, targets) in enumerate(batches_of(calibration)):
            found = _sweep(model, weights, inputs) if kind == "obd" else None
            found = found or _squares(model, weights, inputs, _labels(kind, model, inputs, targets, number))
            for total, part in zip(totals, found, strict=True):
                total += part.double()
            count += len(inputs)
    if not count:
        raise ConfigurationError("calibration gave no batch")
    return [_finite(average(layer.band(t) / count), layer.name) for layer, t in zip(layers, totals, strict=True)]


def bridging_gradients(
    model: nn.Module, pairs: Sequence[tuple[Layer, Layer]], calibration: Any, average: Callable[[Tensor], Tensor]
) -> list[Tensor]:
    """B = -(1/n) H^T dL/da of each pair of linear layers: H what the first one reads, a what the second one gives."""
    sums, count = [torch.zeros(()) for _ in pairs], 0
    seen: dict[tuple[int, int], Tensor] = {}
    hooks = []
    for place, (below, above) in enumerate(pairs):
        hooks += [
            below.module.register_forward_pre_hook(lambda _, x, at=place: seen.update({(at, 0): x[0].detach()})),
            above.module.register_forward_hook(lambda _, x, y, at=place: seen.update({(at, 1): y})),
        ]
    try:
        with evaluation_mode(model), torch.enable_grad():
            for inputs, targets in batches_of(calibration):
                loss = nn.functional.cross_entropy(model(inputs), targets, reduction="sum")
                outputs = [seen[place, 1] for place in range(len(pairs))]
                for place, grad in enumerate(torch.autograd.grad(loss, outputs)):
                    read = seen[place, 0].reshape(-1, seen[place, 0].shape[-1])
                    sums[place] = sums[place].to(grad.device) - (read.T @ grad.reshape(-1, grad.shape[-1])).double()
                count += len(inputs)
    finally:
        for hook in hooks:
            hook.remove()
    if not count:
        raise ConfigurationError("calibration gave no batch")
    return [_finite(average(total / count), pairs[i][0].name) for i, total in enumerate(sums)]


def _sweep(model: nn.Module, weights: list[nn.Parameter], inputs: Tensor) -> list[Tensor]:
    """Second derivatives swept back from c = p (1 - p): sums over samples of c x^2."""
    logits = model(inputs)
    p = logits.detach().softmax(1)
    return list(torch.autograd.grad(logits, weights, p * (1 - p), materialize_grads=True))


def _labels(kind: str, model: nn.Module, inputs: Tensor, targets: Tensor, number: int) -> Tensor:
    if kind == "empirical":
        return targets
    with torch.no_grad():
        p = model(inputs).float().softmax(1)
    source = randomness.generator(0, "labels", number)
    return torch.multinomial(p.cpu(), 1, generator=source).squeeze(1).to(targets.device)


def _squares(model: nn.Module, weights: list[nn.Parameter], inputs: Tensor, labels: Tensor) -> list[Tensor]:
    """Sums over samples of the squared gradient of each sample's loss."""
    totals = [torch.zeros(w.shape, dtype=torch.float64, device=w.device) for w in weights]
    for x, label in zip(inputs.split(1), labels.split(1), strict=True):
        loss = nn.functional.cross_entropy(model(x), label)
        for total, grad in zip(totals, torch.autograd.grad(loss, weights, materialize_grads=True), strict=True):
            total += grad.double().square()
    return totals


@contextmanager
def _plain() -> Iterator[None]:
    yield


def refuse_unswept(model: nn.Module) -> None:
    """An error for a network with a part that second derivatives are not swept through."""
    for name, module in model.named_modules():
        inner = any(True for _ in module.children())
        padded = isinstance(module, _MEANS) and module.padding not in (0, (0,), (0, 0))
        if not inner and (padded or not isinstance(module, (*_WEIGHTED, *_MEANS, *_SMOOTH, *_PIECEWISE))):
            raise UnsupportedError(
                f"the sweep of second derivatives does not know {type(module).__name__} ({name}): say curvature='fisher', which takes "
                "any network"
            )


@contextmanager
def _squared(model: nn.Module) -> Iterator[None]:
    """Inside, backward passes have squared weights, inputs and derivatives."""
    refuse_unswept(model)
    ways = ((_WEIGHTED, _Squared.run), (_MEANS, _Mean.run), (_SMOOTH, _Activated.run))
    changed = {module: run for module in model.modules() for kinds, run in ways if isinstance(module, kinds)}
    try:
        for module, run in changed.items():
            module.forward = functools.partial(run, module)  # type: ignore[method-assign]
        yield
    finally:
        for module in changed:
            del module.forward


class _Squared(torch.autograd.Function):
    """A product whose backward pass carries second derivatives: W^2 towards the inputs, x^2 towards the weights."""

    @staticmethod
    def run(module: Any, x: Tensor) -> Tensor:
        return _Squared.apply(module, x, module.weight)

    @staticmethod
    def forward(ctx: Any, module: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.module = module
        ctx.save_for_backward(x, weight)
        return type(module).forward(module, x)

    @staticmethod
    def backward(ctx: Any, c: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight), module = ctx.saved_tensors, ctx.module
        with torch.enable_grad():
            x2, w2 = x.detach().square().requires_grad_(), weight.detach().square().requires_grad_()
            linear = isinstance(module, nn.Linear)
            out = nn.functional.linear(x2, w2) if linear else module._conv_forward(x2, w2, None)
        back, own = torch.autograd.grad(out, (x2, w2), c)
        return None, back, own


class _Mean(torch.autograd.Function):
    """A mean over n whose backward pass carries second derivatives: c / n^2 to each."""

    @staticmethod
    def run(module: Any, x: Tensor) -> Tensor:
        return _Mean.apply(module, x)

    @staticmethod
    def forward(ctx: Any, module: Any, x: Tensor) -> Tensor:
        ctx.module, ctx.like = module, x.detach()
        return type(module).forward(module, x)

    @staticmethod
    def backward(ctx: Any, c: Tensor) -> tuple[Tensor | None, ...]:
        with torch.enable_grad():
            x = torch.zeros_like(ctx.like).requires_grad_()
            out = type(ctx.module).forward(ctx.module, x)
        (back,) = torch.autograd.grad(out, x, c)
        size = ctx.module.kernel_size
        n = math.prod(size) if isinstance(size, tuple) else size ** (x.ndim - 2)
        return None, back / n


class _Activated(torch.autograd.Function):
    """An activation whose backward pass carries second derivatives: f'^2 c, without the term in f''."""

    @staticmethod
    def run(module: Any, x: Tensor) -> Tensor:
        return _Activated.apply(module, x)

    @staticmethod
    def forward(ctx: Any, module: Any, x: Tensor) -> Tensor:
        ctx.module, ctx.x = module, x.detach()
        return type(module).forward(module, x)

    @staticmethod
    def backward(ctx: Any, c: Tensor) -> tuple[Tensor | None, ...]:
        with torch.enable_grad():
            x = ctx.x.requires_grad_()
            (slope,) = torch.autograd.grad(type(ctx.module).forward(ctx.module, x).sum(), x)
        return None, slope.square() * c


def _finite(tensor: Tensor, name: str) -> Tensor:
    if not bool(torch.isfinite(tensor).all()):
        raise NonFiniteError(f"calibration gives numbers that are not finite in layer {name}: check inputs and weights")
    return tensor
