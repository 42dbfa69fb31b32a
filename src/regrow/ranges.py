"""Which values a configuration may have."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from regrow.errors import ConfigurationError, unknown
from regrow.models.registry import TIMM_PREFIX

if TYPE_CHECKING:
    from regrow.config import Config


@dataclass(frozen=True)
class Range:
    """Numbers that a key may have, and what to say of others."""

    holds: Callable[[Any], bool]
    says: str
    hint: str = ""

    def check(self, path: str, value: Any) -> None:
        """Refuse a value outside, naming the key, the value and the range."""
        if not self.holds(value):
            raise ConfigurationError(f"{path} {self.says}, got {value}{self.hint}")


FINITE = Range(lambda value: value != math.inf, "must be finite")
POSITIVE = Range(lambda value: value > 0, "must be positive")
NOT_NEGATIVE = Range(lambda value: value >= 0, "must not be negative")
BELOW_ONE = Range(lambda value: 0 <= value < 1, "must lie in [0, 1)")
DENSITY = Range(lambda value: 0 < value <= 1, "must lie in (0, 1]", ": 0.05 keeps 5% of the weights")
ALLOWANCE = Range(
    lambda value: 0 <= value <= 1, "must lie in [0, 1]", ": 0.1 allows a tenth of the dense compute, 0 any"
)
CANDIDATES = Range(
    lambda value: isinstance(value, (int, float)) and (value == 0 or 1 <= value < math.inf),
    "must be 0 or at least 1",
    ": 4 keeps four candidates for each weight to grow, 0 all missing weights",
)
SEED = Range(lambda value: -(2**63) <= value < 2**63, "must lie in [-2^63, 2^63)")

_CHOICES: dict[str, tuple[str, ...]] = {
    "precision": ("fp32", "bf16"),
    "data.augment": ("auto", "on", "off"),
    "optimizer.name": ("sgd", "adam", "adamw"),
    "schedule.kind": ("step", "cosine", "constant"),
}
_RANGES = {
    **dict.fromkeys(("epochs", "log_every", "evaluate_every"), POSITIVE),
    **dict.fromkeys(("data.batch", "data.eval_batch", "data.image_size"), POSITIVE),
    **dict.fromkeys(("optimizer.lr", "schedule.every", "schedule.factor"), POSITIVE),
    **dict.fromkeys(("max_steps", "patience", "threads", "checkpoint_seconds"), NOT_NEGATIVE),
    **dict.fromkeys(("optimizer.weight_decay", "optimizer.clip_norm", "schedule.warmup_epochs"), NOT_NEGATIVE),
    **dict.fromkeys(("label_smoothing", "optimizer.momentum"), BELOW_ONE),
    "seed": SEED,
}
_MAY_BE_INFINITE = ("checkpoint_seconds",)
# Whoever runs a configuration from elsewhere does not expect it to open files or connections of its author's choice.
_LOADING = frozenset({"checkpoint_path", "pretrained", "pretrained_cfg", "pretrained_cfg_overlay", "cache_dir"})


def choices_of(config: Config) -> dict[str, tuple[str, ...]]:
    """The words that a key may have, where they are few."""
    return _CHOICES | {path: known.choices for path, known in _arguments(config).items() if known.choices}


def check_values(config: Config) -> None:
    """Refuse values out of range, naming the key, the value and the range."""
    for path, choices in choices_of(config).items():
        value = value_at(config, path)
        if value not in choices:
            raise unknown(path, str(value), filter(None, choices))
    ranges = _RANGES | {path: known.within for path, known in _arguments(config).items() if known.within}
    for path, within in ranges.items():
        if within in (POSITIVE, NOT_NEGATIVE) and path not in _MAY_BE_INFINITE:
            FINITE.check(path, value_at(config, path))
        within.check(path, value_at(config, path))
    if config.keep_checkpoints < 2:
        raise ConfigurationError(
            "keep_checkpoints must be at least 2: if the newest is damaged, the one before is used"
        )
    betas = config.optimizer.betas
    if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
        raise ConfigurationError(f"optimizer.betas must be two numbers in [0, 1), got {list(betas)}")
    _refuse_loading(config)


def _refuse_loading(config: Config) -> None:
    if config.model.startswith(TIMM_PREFIX) and (loading := sorted(_LOADING & config.model_options.keys())):
        raise ConfigurationError(
            f"model_options.{loading[0]} makes timm load a file or fetch one, which a configuration must not ask for: load weights in "
            "a program of your own"
        )


def _arguments(config: Config) -> dict[str, Any]:
    """The arguments of ``sparsify`` in a configuration, by path."""
    return {f"sparse.{item.name}": known for item in fields(config.sparse) for known in item.metadata.values()}


def value_at(config: Config, path: str) -> Any:
    """The value of a key given by its path."""
    value: Any = config
    for part in path.split("."):
        value = getattr(value, part)
    return value
