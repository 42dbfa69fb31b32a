"""Switches how a layer computes: `attach` lets a Linear or Conv layer run on native sparse kernels, in place.

The module keeps its identity, its dense-shaped `weight`, its hooks and its `state_dict`; only its class changes to a
subclass with another `forward`. `Execution.detach()` switches back.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from regrow import native
from regrow.errors import StateError, UnsupportedError
from regrow.execution.choosing.arrival import left_layout
from regrow.execution.kernels import ops  # noqa: F401  (registers the operators)
from regrow.execution.kernels.compact import CompactFunction, Witness
from regrow.execution.kernels.gradient import GradientBuffer, SparseFunction
from regrow.execution.kernels.inputs_first import InputsFirstFunction
from regrow.execution.kernels.pattern import SparsePattern
from regrow.execution.modules import compact
from regrow.execution.modules.compact import CompactLayer, Lent
from regrow.execution.modules.geometry import Dense, geometry_of
from regrow.marks import among, placed
from regrow.scope import inputs_first
from regrow.support import Support
from regrow.vectors import resize, still

_ATTRIBUTE = "_regrow_execution"


class _SparseLayer(nn.Module):
    """Mixin: a layer that computes features (N, C) or maps (N, C, H, W) by its sparse execution."""

    weight: Tensor

    def _get_name(self) -> str:
        """Printed as what it is to its owner: how it computes is `handle.explain()`'s to say."""
        return dense_class(type(self)).__name__

    @property
    def _execution(self) -> Execution:
        return self.__dict__[_ATTRIBUTE]

    @property
    def _weight(self) -> Tensor:
        """What kernels read: dense-shaped, or present entries only."""
        weight = self._parameters["weight"]
        assert weight is not None
        return weight

    @property
    def _live(self) -> bool:
        # A weight converted since (`model.bfloat16()`) has no kernels, nor has one that is computed since (parametrizations).
        weight = self._parameters.get("weight")
        return weight is not None and weight.dtype in native.SUFFIX and self._execution.applies(weight)

    def __prepare_scriptable__(self) -> nn.Module:
        raise UnsupportedError(
            "torch.jit.script cannot compile sparse layers: call handle.densify() first, or use torch.jit.trace"
        )


class SparseLinear(_SparseLayer, nn.Linear):
    """`nn.Linear` on sparse kernels; made by `attach`, not constructed."""

    def forward(self, x: Tensor) -> Tensor:
        """y = x W^T + b."""
        if not self._live:
            return super().forward(x)
        if x.shape[-1:] != (self.in_features,):
            raise self._execution.misshaped(x, f"(..., {self.in_features})")
        flat = x if x.dim() == 2 else x.reshape(-1, self.in_features)
        y = self._execution.compute(flat, self._weight, self.bias)
        return y if x.dim() == 2 else y.reshape(*x.shape[:-1], self.out_features)


class SparseConv1d(_SparseLayer, nn.Conv1d):
    """`nn.Conv1d` on sparse kernels; made by `attach`, not constructed."""

    def forward(self, x: Tensor) -> Tensor:
        """Convolution over the last dimension of (N, C, L) or (C, L)."""
        if not self._live:
            return super().forward(x)
        if x.dim() not in (2, 3):
            raise self._execution.misshaped(x, f"(N, C, length) or (C, length) with C = {self.in_channels}")
        maps = (x if x.dim() == 3 else x[None])[:, :, None, :]
        y = self._execution.compute(maps, self._weight, self.bias)[:, :, 0, :]
        return y if x.dim() == 3 else y[0]


class SparseConv2d(_SparseLayer, nn.Conv2d):
    """`nn.Conv2d` on sparse kernels; made by `attach`, not constructed."""

    def forward(self, x: Tensor) -> Tensor:
        """Convolution over the last two dimensions of (N, C, H, W) or (C, H, W)."""
        if not self._live:
            return super().forward(x)
        if x.dim() not in (3, 4):
            raise self._execution.misshaped(x, f"(N, C, H, W) or (C, H, W) with C = {self.in_channels}")
        y = self._execution.compute(x if x.dim() == 4 else x[None], self._weight, self.bias)
        return y if x.dim() == 4 else y[0]


class _SparseInputsFirst(_SparseLayer):
    """Mixin: Hugging Face's `Conv1D` on sparse kernels, a linear layer with a weight [inputs, outputs]."""

    bias: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """y = x W + b."""
        # Compiled programs have no operator for it.
        if not self._live or torch.compiler.is_compiling():
            return super().forward(x)
        inputs, outputs = self.weight.shape
        if x.shape[-1:] != (inputs,):
            raise self._execution.misshaped(x, f"(..., {inputs})")
        y = self._execution.compute(x.reshape(-1, inputs), self.weight, self.bias)
        return y.reshape(*x.shape[:-1], outputs)


_SPARSE_CLASS: dict[type, type] = {nn.Linear: SparseLinear, nn.Conv1d: SparseConv1d, nn.Conv2d: SparseConv2d}
_DERIVED: dict[type, type] = {}
# Computes as nn.Linear, but for torch.jit.script.
_ALIKE = ("timm.layers.linear.Linear",)
# Attention reads this one's weight and never calls it.
_NEVER_CALLED = (nn.modules.linear.NonDynamicallyQuantizableLinear,)


def sparse_class_of(kind: type) -> type | None:
    """The class in which a module of this kind runs on kernels; None where it computes something else than its torch base class."""
    if kind in _SPARSE_CLASS:
        return _SPARSE_CLASS[kind]
    base = next((base for base in _SPARSE_CLASS if issubclass(kind, base)), inputs_first(kind))
    if base is None or kind in _NEVER_CALLED:
        return None
    own = any(getattr(kind, name, 0) is not getattr(base, name, 0) for name in ("forward", "_conv_forward", "__call__"))
    if own and f"{kind.__module__}.{kind.__qualname__}" not in _ALIKE:
        return None
    if kind not in _DERIVED:
        mixin = _SPARSE_CLASS.get(base, _SparseInputsFirst)
        _DERIVED[kind] = type(f"Sparse{kind.__name__}", (mixin, kind), {"__reduce_ex__": _reduce})
    return _DERIVED[kind]


def dense_class(kind: type) -> type:
    """The inverse of `sparse_class_of`."""
    kind = compact.sparse_class(kind)
    return next(dense for pairs in (_SPARSE_CLASS, _DERIVED) for dense, sparse in pairs.items() if sparse is kind)


def _reduce(module: nn.Module, protocol: object) -> tuple:
    """A derived class cannot be found by its name: copies and pickles make it anew."""
    return _blank, (dense_class(type(module)),), module.__dict__


def _blank(kind: type) -> nn.Module:
    made = sparse_class_of(kind)
    assert made is not None
    return nn.Module.__new__(made)


def unsupported(module: nn.Module) -> str | None:
    """Why a module cannot run on the sparse kernels, or None if it can."""
    if not native.available():
        return "the native kernels are not built (no C++17 compiler at installation)"
    kind = type(module)
    if kind in _NEVER_CALLED:
        return "attention reads its weight and never calls it"
    if sparse_class_of(kind) is None:
        return f"{kind.__module__}.{kind.__qualname__} does not compute as nn.Linear, nn.Conv1d or nn.Conv2d"
    weight = module.weight
    if weight.device.type != "cpu":
        return f"its weight is on {weight.device}; the sparse kernels run on the CPU"
    if weight.dtype not in native.SUFFIX:
        return f"its weight is {weight.dtype}; the sparse kernels compute in float32 or float64"
    if not 0 < weight.numel() < 2**31:
        return f"its weight has {weight.numel()} elements"
    if getattr(module, "padding_mode", "zeros") != "zeros":
        return f"padding_mode is {module.padding_mode!r}; only zeros are padded natively"
    if "weight" not in module._parameters:
        return "its weight is computed (weight norm or another hook), not a plain parameter"
    return None


class Owner(Protocol):
    """Who keeps the masks of a weight in compact storage."""

    def take_loaded(self, known: Tensor, values: Tensor) -> Tensor: ...  # noqa: D102
    def unplaced(self) -> tuple[Tensor, Tensor] | None: ...  # noqa: D102
    def witness(self, x: Tensor, grad: Tensor, pattern: SparsePattern) -> Tensor: ...  # noqa: D102


class Execution:
    """The sparse execution of one layer, as returned by `attach`.

    ``only_compact``: the weight has never been dense, and may be too large for it.
    ``fits``, where somebody sets it, says before each pass whether all weights outside the support are zero, of the tensor at hand.
    """

    def __init__(self, module: Dense, pattern: SparsePattern) -> None:
        self._module, self.buffer, self.dense = module, GradientBuffer(), False
        self._take(pattern)
        self.live, self.only_compact = True, False
        self.owner: Callable[[], Owner | None] | None = None
        self.fits: Callable[[Tensor], bool] | None = None
        self.name: str | None = None
        self.left_layout: str | None = None
        self._looked = self._moved = False
        self.lent, self._inputs_first = Lent(), inputs_first(type(module)) is not None

    def take_weight(self) -> None:
        """Let a channels_last weight lie in ordinary order, in which kernels read it: else every pass copies it. `detach` puts it back."""
        weight = self._module._parameters["weight"]
        assert weight is not None
        if weight.dim() == 4 and not weight.is_contiguous() and weight.is_contiguous(memory_format=torch.channels_last):
            weight.data, self._moved = weight.data.contiguous(), True

    def use_compact(self) -> None:
        """Let the module's weight be the vector of present entries; its owner sees to the parameter. `detach` puts it back."""
        if not isinstance(self._module, CompactLayer):
            self._module.__class__ = compact.compact_class(type(self._module))

    def take_loaded(self, known: Tensor, values: Tensor) -> Tensor:
        """The present entries of a loaded weight, of which the owner of the masks is told all."""
        owner = None if self.owner is None else self.owner()
        if owner is not None:
            return owner.take_loaded(known, values)
        held = among(self.pattern.support.positions, known)
        if not bool(held.all()):
            raise StateError(f"{self.where()}{int((~held).sum())} loaded weights lie outside its mask")
        return placed(values, known, self.pattern.support.positions)

    def unplaced(self) -> tuple[Tensor, Tensor] | None:
        """Positions and values of weights that were loaded and wait for their masks."""
        owner = None if self.owner is None else self.owner()
        return None if owner is None else owner.unplaced()

    def _take(self, pattern: SparsePattern) -> None:
        self.pattern = pattern
        # At hand for torch.compile, which cannot trace how they are made.
        self.operands = () if pattern.support.is_compact else pattern.operands()

    def update(self, mask: Tensor | Support, gradient_mask: Tensor | Support | None = None) -> None:
        """Take the support of a topology update; lists are rebuilt at the next use. Passes that were made keep the old one."""
        now = self.pattern
        if mask is not now.support or gradient_mask is not now.reach:
            self._take(SparsePattern(mask, now.geometry, gradient_mask))
        self.live, self._looked = True, False

    def applies(self, weight: Tensor) -> bool:
        """Whether this layer's kernels compute now, with this weight.

        Programs that are traced or exported hold plain torch operations, which are right everywhere; transforms of torch.func and
        forward-mode differentiation have no kernels. While weights lie outside the support (see `fits`) kernels would leave them out.
        """
        if not self.live or torch.jit.is_tracing() or torch.compiler.is_exporting():
            return False
        if torch.compiler.is_compiling():
            return True
        self.lent.refuse_written(self.where())
        return not native.transformed() and (self.fits is None or self.fits(weight))

    def dense_gradient(self, on: bool) -> None:
        """Switch the dense weight gradient of a growth window on or off, for the following forward passes."""
        self.dense = on

    def compute(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The layer on features or 4-D maps."""
        channels = self.pattern.out_channels if self._inputs_first else self.pattern.in_channels
        if x.shape[1] != channels:
            raise self.misshaped(x, f"{channels} channels in dimension 1")
        rows, cols = self.pattern.geometry.smallest
        if x.dim() == 4 and (x.shape[2] < rows or x.shape[3] < cols):
            raise self.misshaped(x, f"maps of at least {rows} x {cols} pixels, for its kernel to fit")
        if self.pattern.support.is_compact:
            # At the first use: whoever never stores compactly need not wait for all of torch.compile to be imported.
            from regrow.execution.kernels.uncompiled import eagerly

            return eagerly(self._compute_compact, x, weight, bias)
        if x.dtype != weight.dtype:
            x = self._converted(x, weight.dtype)
        if torch.compiler.is_compiling():
            return torch.ops.regrow.sparse_forward(x, weight, bias, *self.operands, self.dense)
        if not self._looked and x.grad_fn is not None:
            self.left_layout, self._looked = left_layout(x), True
        function = InputsFirstFunction if self._inputs_first else SparseFunction
        return function.apply(x, weight, bias, self.pattern, self.buffer, self.dense)

    def _compute_compact(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        with still():
            x = x if x.dtype == weight.dtype else self._converted(x, weight.dtype)
            return CompactFunction.apply(x, weight, bias, self.pattern, self.witness)

    @property
    def witness(self) -> Witness | None:
        """Who is told of gradients of missing weights, inside a growth window."""
        owner = self.owner() if self.owner is not None and self.dense else None
        return None if owner is None else owner.witness

    def misshaped(self, x: Tensor, expected: str) -> ValueError:
        """The error for an input that does not fit."""
        return ValueError(f"{self.where()}input has shape {tuple(x.shape)}, expected {expected}")

    def _converted(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """Only autocast, which gives layers their input in a type of its own, may convert: torch refuses other types too."""
        if torch.is_autocast_enabled("cpu") and x.is_floating_point() and x.dtype != torch.float64:
            return x.to(dtype)
        raise TypeError(f"{self.where()}input is {x.dtype}, its weight {dtype}: convert one of them")

    def where(self) -> str:  # noqa: D102
        return "" if self.name is None else f"layer {self.name}: "

    def __deepcopy__(self, memo: dict[int, object]) -> Execution:
        """A copied layer computes dense until somebody gives it masks: nobody tells a lone copy of later topology updates."""
        twin = memo[id(self)] = Execution(copy.deepcopy(self._module, memo), copy.deepcopy(self.pattern, memo))
        twin.live, twin._moved, twin.only_compact = self.only_compact, self._moved, self.only_compact
        return twin

    def __getstate__(self) -> dict[str, object]:
        """Pickled under a handle, a layer computes dense when it is read: nobody compares its weights with its support there."""
        state = {key: value for key, value in self.__dict__.items() if key not in ("operands", "fits", "owner", "lent")}
        return {**state, "live": self.live and self.fits is None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, fits=None, owner=None, lent=Lent())
        self._take(self.pattern)

    def detach(self) -> None:
        """Switch the module back to its dense class."""
        weight = self._module._parameters["weight"]
        if isinstance(self._module, CompactLayer) and weight is not None and weight.shape != self.pattern.shape:
            resize(weight, self._module.weight.detach())
        if self._module.__dict__.pop(_ATTRIBUTE, None) is not None:
            self._module.__class__ = dense_class(type(self._module))
        if self._moved:
            self._moved = False
            self._module.weight.data = self._module.weight.data.contiguous(memory_format=torch.channels_last)


def attach(module: nn.Module, mask: Tensor | Support, gradient_mask: Tensor | Support | None = None) -> Execution:
    """Let `module` compute with its present weights only; the kernels ignore weights outside `mask` whatever their value.

    Where it computes dense all the same (while torch.jit traces, in types without kernels) weights outside the mask must be zero.

    Args:
        module: an `nn.Linear`, `nn.Conv1d` or `nn.Conv2d`, or Hugging Face's `Conv1D` (see `unsupported`).
        mask: bool, shaped like `module.weight`, or the support itself.
        gradient_mask: where weight gradients are computed, default `mask`.

    Example:
        >>> layer = torch.nn.Linear(4, 2)
        >>> execution = attach(layer, torch.tensor([[True, False, False, False], [False, False, True, False]]))
        >>> y = layer(torch.ones(3, 4))
        >>> execution.detach()
    """
    if _ATTRIBUTE in module.__dict__:
        raise ValueError("this module already runs sparse; call update() on its execution, or detach() it first")
    if reason := unsupported(module):
        raise ValueError(f"cannot run this layer sparse: {reason}")
    layer = cast(Dense, module)  # or computes as one: unsupported() has asked
    if mask.shape != layer.weight.shape:
        raise ValueError(f"mask has shape {tuple(mask.shape)}, expected the weight's {tuple(layer.weight.shape)}")
    return _attached(layer, SparsePattern(mask, geometry_of(layer), gradient_mask))


def attach_pattern(module: Dense, pattern: SparsePattern) -> Execution:
    """Let a module whose weight is the vector of present entries, and never was another, compute with them."""
    execution = _attached(module, pattern)
    execution.use_compact()
    execution.only_compact = True
    return execution


def _attached(module: Dense, pattern: SparsePattern) -> Execution:
    execution = module.__dict__[_ATTRIBUTE] = Execution(module, pattern)
    module.__class__ = sparse_class_of(type(module))  # type: ignore[assignment]  # who attaches has asked
    return execution


def execution_of(module: nn.Module) -> Execution | None:
    """The sparse execution attached to a module, or None."""
    return module.__dict__.get(_ATTRIBUTE)
