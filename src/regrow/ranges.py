"""Which values a configuration may have."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from regrow.errors import ConfigurationError, unknown

if TYPE_CHECKING:
    from regrow.config import Config

CHOICES: dict[str, tuple[str, ...]] = {
    "precision": ("fp32", "bf16"),
    "data.augment": ("auto", "on", "off"),
    "optimizer.name": ("sgd", "adam", "adamw"),
    "schedule.kind": ("step", "cosine", "constant"),
    "sparse.costs": ("macs", "measured"),
    "sparse.execution": ("masked", "sparse", "auto"),
    "sparse.momentum_source": ("optimizer", "gradient"),
    "sparse.start": ("", "random", "magnitude", "zeros"),
}
_POSITIVE = (
    "epochs",
    "log_every",
    "evaluate_every",
    "data.batch",
    "data.eval_batch",
    "data.image_size",
    "sparse.window_stride",
    "optimizer.lr",
    "schedule.every",
    "schedule.factor",
)
_NOT_NEGATIVE = (
    "max_steps",
    "patience",
    "threads",
    "checkpoint_seconds",
    "optimizer.weight_decay",
    "optimizer.clip_norm",
    "schedule.warmup_epochs",
    "sparse.update_every",
)
_SHARES = ("label_smoothing", "optimizer.momentum", "sparse.window_tolerance")


def check_values(config: Config) -> None:
    """Refuse values out of range, naming the key, the value and the range."""
    for path, choices in CHOICES.items():
        value = value_at(config, path)
        if value not in choices:
            raise unknown(path, str(value), filter(None, choices))
    for path in (*_POSITIVE, *_NOT_NEGATIVE):
        if value_at(config, path) == math.inf and path != "checkpoint_seconds":
            raise ConfigurationError(f"{path} must be finite, got {value_at(config, path)}")
    for path in _POSITIVE:
        if not value_at(config, path) > 0:
            raise ConfigurationError(f"{path} must be positive, got {value_at(config, path)}")
    for path in _NOT_NEGATIVE:
        if not value_at(config, path) >= 0:
            raise ConfigurationError(f"{path} must not be negative, got {value_at(config, path)}")
    for path in _SHARES:
        if not 0 <= value_at(config, path) < 1:
            raise ConfigurationError(f"{path} must lie in [0, 1), got {value_at(config, path)}")
    if not 0 < config.sparse.density <= 1:
        raise ConfigurationError(
            f"sparse.density must lie in (0, 1], got {config.sparse.density}: 0.05 keeps 5% of the weights"
        )
    for path in ("sparse.macs", "sparse.milliseconds"):
        if not 0 <= value_at(config, path) <= 1:
            raise ConfigurationError(
                f"{path} must lie in [0, 1], got {value_at(config, path)}: 0.1 allows a tenth of the dense compute, 0 any"
            )
    if config.keep_checkpoints < 2:
        raise ConfigurationError(
            "keep_checkpoints must be at least 2: if the newest is damaged, the one before is used"
        )
    if not -(2**63) <= config.seed < 2**63:
        raise ConfigurationError(f"seed must lie in [-2^63, 2^63), got {config.seed}")
    betas = config.optimizer.betas
    if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
        raise ConfigurationError(f"optimizer.betas must be two numbers in [0, 1), got {list(betas)}")


def value_at(config: Config, path: str) -> Any:
    """The value of a key given by its path."""
    value: Any = config
    for part in path.split("."):
        value = getattr(value, part)
    return value
