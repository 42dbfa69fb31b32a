"""Which network a file is of: a name and options of the registry, or a class of the user's by its import path. Never code.

    {"model": "lenet300", "options": {"num_classes": 10}}       {"class": "mypackage.nets:Net", "arguments": {"width": 64}}

A file can name anything, so a name alone must not make this process import or fetch something: registry models get the options they
declare, timm models a short list of harmless ones, and a class is imported only if the caller allows that very path.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from regrow import models
from regrow.errors import ConfigurationError, MissingPackageError, RegrowError, StateError
from regrow.models.registry import TIMM_PREFIX, UnknownModelError

_TIMM_OPTIONS = ("num_classes", "input_shape", "in_chans", "drop_rate", "drop_path_rate", "global_pool", "img_size")


def entry_of(architecture: object, options: Mapping[str, Any], state: Mapping[str, Tensor]) -> dict[str, Any]:
    """The description of a network with this state, which it must build again.

    Raises:
        ConfigurationError: it is neither a name nor a class, or builds nothing, or another network.
    """
    if isinstance(architecture, str):
        entry, make = registry_entry(architecture, options), partial(models.create, architecture, **options)
    elif isinstance(architecture, type) and issubclass(architecture, nn.Module):
        entry, make = class_entry(architecture, options), partial(architecture, **options)
    else:
        kind = type(architecture).__name__
        raise ConfigurationError(f"architecture must be the name of a model or a class of networks, got a {kind}")
    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            built = make()
        _compare(built, state)
    except UnknownModelError as error:
        raise ConfigurationError(f"{error} For a network of your own give its class as architecture") from error
    except MissingPackageError:
        pass  # who loads the file may have it
    except (ConfigurationError, StateError, TypeError) as error:
        raise ConfigurationError(
            f"architecture and options do not build this network ({error}): correct them, or leave both out and pass the network when "
            "you load"
        ) from error
    except Exception:
        pass  # not every network can be laid out without memory: whoever loads it passes it then
    return entry


def registry_entry(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The description of a registry or timm model."""
    return {"model": name, "options": {key: _plain(key, value) for key, value in options.items()}}


def class_entry(kind: type[nn.Module], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The description of a user's class, which must be importable by its name."""
    path = f"{kind.__module__}:{kind.__qualname__}"
    if "<" in path or kind.__module__ == "__main__":
        raise ConfigurationError(f"{path} cannot be imported elsewhere: define the class at the top of a module")
    return {"class": path, "arguments": {key: _plain(key, value) for key, value in arguments.items()}}


def build(architecture: Mapping[str, Any] | None, allow: Collection[str] = ()) -> nn.Module:
    """The network without weights, on the meta device: no memory is spent before its shapes are compared with the file's.

    Raises:
        StateError: the description is missing or not one of both kinds.
        ConfigurationError: a class that the caller did not allow, or options that the model does not take.
    """
    if architecture is None:
        raise StateError("the file does not say which network it is of: pass it, load(path, model=...)")
    if sorted(architecture) not in (["model", "options"], ["arguments", "class"]):
        raise StateError("the file's description of its architecture is not readable")
    make = _registry_builder(architecture) if "model" in architecture else _class_builder(architecture, allow)
    try:
        with torch.device("meta"):
            return make()
    except RegrowError:
        raise
    except Exception as error:
        raise StateError(f"the file's architecture cannot be built ({type(error).__name__}: {error})") from error


def fill(model: nn.Module, state: Mapping[str, Tensor]) -> nn.Module:
    """Give a network (also one on the meta device) a file's tensors; shapes are compared before anything changes."""
    _compare(model, state)
    model.load_state_dict(dict(state), assign=True)
    if left := [name for name, buffer in model.named_buffers() if buffer.is_meta]:
        raise StateError(
            f"buffer {left[0]} is not part of the network's state: build the network yourself, load(path, model=...)"
        )
    return model.requires_grad_(False).eval()


def _compare(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    own = model.state_dict()
    if names := sorted(set(own) ^ set(state)):
        holder = "file" if names[0] in state else "network"
        raise StateError(f"tensor {names[0]} is only in the {holder}: the file is of another network")
    for name, tensor in state.items():
        if own[name].shape != tensor.shape:
            raise StateError(
                f"tensor {name} has shape {tuple(tensor.shape)} in the file, {tuple(own[name].shape)} in the network"
            )


def _registry_builder(architecture: Mapping[str, Any]) -> Callable[[], nn.Module]:
    name, options = architecture["model"], architecture["options"]
    if not isinstance(name, str) or not isinstance(options, dict):
        raise StateError("the file's description of its architecture is not readable")
    options = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
    if name.startswith(TIMM_PREFIX) and (refused := sorted(set(options) - set(_TIMM_OPTIONS))):
        raise ConfigurationError(
            f"the file asks timm for option {refused[0]!r}, which files may not use: build the network yourself and "
            "pass it, load(path, model=...)"
        )
    return lambda: models.create(name, **options)


def _class_builder(architecture: Mapping[str, Any], allow: Collection[str]) -> Callable[[], nn.Module]:
    path, arguments = architecture["class"], architecture["arguments"]
    if not isinstance(path, str) or path.count(":") != 1 or not isinstance(arguments, dict):
        raise StateError("the file's description of its architecture is not readable")
    if path not in allow:
        raise ConfigurationError(
            f"the file is of the class {path}, which was not imported: if you trust that module, load(path, allow=[{path!r}]), on the "
            f"command line --allow {path}; or build the network yourself, load(path, model=...)"
        )
    module, _, name = path.partition(":")
    try:
        kind: Any = import_module(module)
        for part in name.split("."):
            kind = getattr(kind, part)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(
            f"the file's class {path} cannot be imported ({error}): put the folder of that module on PYTHONPATH, or build the network "
            "yourself, load(path, model=...)"
        ) from error
    if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
        raise ConfigurationError(f"{path} is not a class of networks")
    return lambda: kind(**arguments)


def _plain(key: str, value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(key, item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ConfigurationError(f"option {key} is a {type(value).__name__}: a file describes networks by plain values")
