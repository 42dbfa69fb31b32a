"""Models by name: `create("wrn-28-2")`, `list_models()`, and `register` for your own."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from regrow.errors import ConfigurationError

if TYPE_CHECKING:
    from torch import nn

TIMM_PREFIX = "timm:"


class UnknownModelError(ConfigurationError):
    """No model has the given name; the message names the nearest."""


@dataclass(frozen=True)
class ModelInfo:
    """What is known of a model without building it.

    Attributes:
        name: the name `create` takes.
        input_shape: one sample, channels first; of a model of tokens their number.
        num_classes: outputs by default.
        description: one line.
        builder: `"module:function"` (imported on demand) or a callable; takes keyword options, among them
            `input_shape` and `num_classes`.
        fixed: options of the builder that this name stands for; `create` does not take them.
        tokens: whether it takes token ids below `num_classes` and predicts one at every position.
    """

    name: str
    input_shape: tuple[int, ...]
    num_classes: int
    description: str
    builder: str | Callable[..., nn.Module]
    fixed: tuple[tuple[str, Any], ...] = ()
    tokens: bool = False

    def load_builder(self) -> Callable[..., nn.Module]:
        """The function that builds the model."""
        if callable(self.builder):
            return self.builder
        module, function = self.builder.split(":")
        return getattr(import_module(module), function)

    def options(self) -> tuple[str, ...] | None:
        """Names of the options that `create` takes for this model; None where the builder takes any."""
        parameters = inspect.signature(self.load_builder()).parameters
        if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            return None
        return tuple(name for name in parameters if name not in dict(self.fixed))


_REGISTRY: dict[str, ModelInfo] = {}


def register(record: ModelInfo) -> ModelInfo:
    """Add a model to the registry; a name can be taken only once."""
    if record.name in _REGISTRY or record.name.startswith(TIMM_PREFIX):
        raise ConfigurationError(f"model name {record.name!r} is already taken: choose another")
    _REGISTRY[record.name] = record
    return record


def list_models() -> tuple[ModelInfo, ...]:
    """All registered models, in the order of registration. Any timm model can be had besides, as `timm:NAME`."""
    return tuple(_REGISTRY.values())


def info(name: str) -> ModelInfo:
    """The record of one model.

    Raises:
        UnknownModelError: with the nearest known name.
    """
    if name.startswith(TIMM_PREFIX):
        from regrow.models.timm import timm_info

        return timm_info(name.removeprefix(TIMM_PREFIX))
    if name in _REGISTRY:
        return _REGISTRY[name]
    nearest = get_close_matches(name.lower().replace("_", "-"), _REGISTRY, n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]!r}?" if nearest else "see regrow.models.list_models()."
    raise UnknownModelError(f"unknown model {name!r}: {hint} Known: {', '.join(_REGISTRY)}, timm:NAME.")


def create(name: str, *, seed: int | None = None, **options: Any) -> nn.Module:
    """Build a model by name.

    Args:
        name: one of `list_models()`, or `timm:NAME`.
        seed: initialise from this seed and leave torch's global generator alone; None uses the global generator.
        **options: the builder's options, e.g. `input_shape=(1, 32, 32)`, `num_classes=100`, `dropout=0.0`.

    Example:
        >>> sum(p.numel() for p in create("lenet300", seed=0).parameters())
        266610
    """
    record = info(name)
    _check_options(record, options)
    build = partial(record.load_builder(), **dict(record.fixed), **options)
    if seed is None:
        return build()

    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()


def _check_options(record: ModelInfo, options: dict[str, Any]) -> None:
    """Reject options the model does not have, naming the nearest one it has."""
    known = record.options()
    if known is None:
        return
    for option in options:
        if option not in known:
            nearest = get_close_matches(option, known, n=1, cutoff=0.5)
            hint = f"did you mean {nearest[0]!r}? " if nearest else ""
            raise ConfigurationError(
                f"model {record.name!r} has no option {option!r}: {hint}It takes {', '.join(known)}."
            )


_MNIST, _CIFAR, _IMAGENET = (1, 28, 28), (3, 32, 32), (3, 224, 224)


def _wide_resnet(depth: int, width: int, note: str = "") -> ModelInfo:
    name = f"wrn-{depth}-{width}"
    text = f"Wide residual network, depth {depth}, width factor {width}{note}"
    sizes = (("depth", depth), ("width", width))
    return ModelInfo(name, _CIFAR, 10, text, "regrow.models.wide_resnet:wide_resnet", sizes)


_PACKAGE = "regrow.models"
for _record in (
    ModelInfo("lenet300", _MNIST, 10, "LeNet-300-100: three linear layers", f"{_PACKAGE}.lenet:lenet300"),
    ModelInfo(
        "lenet300-bn",
        _MNIST,
        10,
        "LeNet-300-100 as in DSR: batch norm after each layer, no biases",
        f"{_PACKAGE}.lenet:lenet300_bn",
    ),
    ModelInfo("lenet5", _MNIST, 10, "LeNet-5-Caffe: two convolutions, two linear layers", f"{_PACKAGE}.lenet:lenet5"),
    ModelInfo(
        "alexnet-s",
        _CIFAR,
        10,
        "AlexNet for CIFAR, classifier width 1024",
        f"{_PACKAGE}.alexnet:alexnet",
        (("hidden", 1024),),
    ),
    ModelInfo(
        "alexnet-b",
        _CIFAR,
        10,
        "AlexNet for CIFAR, classifier width 2048",
        f"{_PACKAGE}.alexnet:alexnet",
        (("hidden", 2048),),
    ),
    ModelInfo(
        "vgg16-c",
        _CIFAR,
        10,
        "VGG16-C, 1x1 convolutions padded by 1 (sparse momentum's form)",
        f"{_PACKAGE}.vgg:vgg16_c",
    ),
    ModelInfo(
        "vgg16-c-snip",
        _CIFAR,
        10,
        "VGG16-C, 1x1 convolutions unpadded (SNIP's form)",
        f"{_PACKAGE}.vgg:vgg16_c",
        (("pad_1x1", False),),
    ),
    ModelInfo("vgg16-d", _CIFAR, 10, "VGG16-D with batch norm", f"{_PACKAGE}.vgg:vgg16_d"),
    ModelInfo("vgg16-like", _CIFAR, 10, "VGG16-D with one hidden linear layer less", f"{_PACKAGE}.vgg:vgg16_like"),
    _wide_resnet(28, 2),
    _wide_resnet(16, 8),
    _wide_resnet(16, 10),
    _wide_resnet(22, 8),
    _wide_resnet(22, 2, " (RigL's CIFAR network)"),
    ModelInfo(
        "resnet50", _IMAGENET, 1000, "ResNet-50 v1.5: stride on the 3x3 convolution", f"{_PACKAGE}.resnet:resnet50"
    ),
    ModelInfo(
        "gpt-10m",
        (256,),
        65,
        "GPT of 10.6M weights in 6 blocks, over characters",
        f"{_PACKAGE}.gpt:characters",
        (("width", 384), ("depth", 6), ("heads", 6)),
        tokens=True,
    ),
    ModelInfo(
        "gpt2-small",
        (1024,),
        50257,
        "GPT-2 small: 124M weights, 12 blocks, head tied to the embedding",
        f"{_PACKAGE}.gpt:gpt",
        (("width", 768), ("depth", 12), ("heads", 12)),
        tokens=True,
    ),
):
    register(_record)
