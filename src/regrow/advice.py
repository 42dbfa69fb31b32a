"""What newcomers write in configurations and on command lines, and what to write instead."""

from __future__ import annotations

from typing import Any

from regrow.errors import ConfigurationError

_DEVICES = ("device", "gpu", "gpus", "cuda", "cpu", "accelerator")


def refuse_device(key: str) -> None:
    """Runs choose their device themselves."""
    if key.replace("-", "_") in _DEVICES:
        raise ConfigurationError(
            f"--{key} is no key: a run takes the GPU where torch finds one (one per process under torchrun), and the CPU otherwise; "
            "CUDA_VISIBLE_DEVICES= in front of the command keeps it on the CPU"
        )


def refuse_percentage(path: str, value: Any) -> None:
    """Shares are numbers from 0 to 1."""
    if isinstance(value, str) and value.strip().endswith("%"):
        raise ConfigurationError(f"{path} is a share, not a percentage: got {value!r}, write {_share(value)}")


def _share(text: str) -> str:
    try:
        return f"{float(text.strip().removesuffix('%')) / 100:g}"
    except ValueError:
        return "0.05 for 5%"
