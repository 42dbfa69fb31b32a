"""What one training step feeds to the modules of a model: order, shapes, and the batch itself."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Call:
    """The input of one module, and how often the step called it; ``autocast`` is the type of matrix products, if another."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    needs_gradient: bool
    autocast: torch.dtype | None
    times: int = 1


class Recorder:
    """Watches training forward passes until removed; the last one counts. A module called again keeps its first input."""

    def __init__(self, model: nn.Module) -> None:
        self.calls: dict[str, Call] = {}
        self.batch: tuple[tuple[Any, ...], dict[str, Any]] | None = None
        self._model = weakref.ref(model)
        self._hooks = [model.register_forward_pre_hook(_Listener(self), with_kwargs=True)]
        for name, module in leaves(model):
            self._hooks.append(module.register_forward_pre_hook(_Listener(self, name), with_kwargs=True))

    def began(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The whole model was called."""
        self.calls, self.batch = {}, (args, kwargs)

    def called(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A module was called."""
        x = next((value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), None)
        if name in self.calls:
            self.calls[name] = replace(self.calls[name], times=self.calls[name].times + 1)
        elif x is not None and x.is_floating_point():
            lower = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
            self.calls[name] = Call(name, tuple(x.shape), x.dtype, x.requires_grad, lower)

    @property
    def training(self) -> bool:
        """Whether the model is being trained just now."""
        model = self._model()
        return model is not None and model.training and torch.is_grad_enabled()

    def remove(self) -> None:
        """Stop watching."""
        for hook in self._hooks:
            hook.remove()


class _Listener:
    """A hook that modules may carry along when copied or pickled: the copy listens for nobody."""

    def __init__(self, recorder: Recorder | None = None, name: str | None = None) -> None:
        self._recorder, self._name = None if recorder is None else weakref.ref(recorder), name

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if torch.compiler.is_compiling():
            return
        recorder = None if self._recorder is None else self._recorder()
        if recorder is None or not recorder.training:
            return
        if self._name is None:
            recorder.began(args, kwargs)
        else:
            recorder.called(self._name, args, kwargs)

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return _Listener, ()


def leaves(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The modules without parts of their own, by name."""
    return ((name, module) for name, module in model.named_modules() if name and not any(module.children()))
