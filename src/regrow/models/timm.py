"""Any model of the timm library by name, as `timm:NAME`; needs `pip install regrow[timm]`."""

from __future__ import annotations

from difflib import get_close_matches
from functools import partial
from types import ModuleType
from typing import Any

from torch import nn

from regrow.errors import MissingPackageError
from regrow.models.registry import TIMM_PREFIX, ModelInfo, UnknownModelError


def timm_info(name: str) -> ModelInfo:
    """The record of a timm model: input shape and classes of its default configuration.

    Raises:
        MissingPackageError: timm is not installed or fails to import.
        UnknownModelError: timm has no such model; names the nearest.
    """
    timm = _import_timm()
    if not timm.is_model(name):
        nearest = get_close_matches(name, timm.list_models(), n=1, cutoff=0.5)
        hint = f"did you mean 'timm:{nearest[0]}'?" if nearest else "see timm.list_models()."
        raise UnknownModelError(f"timm has no model {name!r}: {hint}")
    config = timm.get_pretrained_cfg(name)
    # A model without published weights has no configuration: timm itself assumes ImageNet then.
    shape = config.input_size if config else (3, 224, 224)
    classes = config.num_classes if config else 1000
    return ModelInfo(TIMM_PREFIX + name, shape, classes, f"timm's {name}", partial(_create_timm, name))


def _create_timm(name: str, **options: Any) -> nn.Module:
    """Build by `timm.create_model`; `input_shape` becomes timm's `in_chans`, all other options pass through."""
    timm = _import_timm()
    if "input_shape" in options:
        options["in_chans"] = options.pop("input_shape")[0]
    return timm.create_model(name, **options)


def _import_timm() -> ModuleType:
    try:
        import timm
    except Exception as error:
        # Not only ImportError: a torchvision built for another torch raises RuntimeError from deep inside.
        raise MissingPackageError(
            f"timm models need the timm package, which could not be imported ({error}): pip install 'regrow[timm]', "
            "with a torchvision built for the installed torch"
        ) from error
    return timm
