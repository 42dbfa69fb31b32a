"""Optimizer and learning rate from the configuration."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from regrow.config import Config

_NORMS = (_NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)


def build_optimizer(model: nn.Module, config: Config) -> torch.optim.Optimizer:
    """The configured optimizer; fused, which is one pass over memory on the CPU too."""
    settings = config.optimizer
    groups = _groups(model, settings.weight_decay, settings.decay_norms)
    if settings.name == "sgd":
        nesterov = settings.nesterov and settings.momentum > 0
        return torch.optim.SGD(groups, lr=settings.lr, momentum=settings.momentum, nesterov=nesterov, fused=True)
    kind = torch.optim.AdamW if settings.name == "adamw" else torch.optim.Adam
    first, second = settings.betas
    return kind(groups, lr=settings.lr, betas=(first, second), fused=True)


def learning_rate(config: Config, step: int, steps_per_epoch: int) -> float:
    """The learning rate of a step, a plain function of it.

    Example:
        >>> [learning_rate(Config(), t, 540) for t in (0, 24_999, 25_000)]
        [0.1, 0.1, 0.010000000000000002]
    """
    schedule, base = config.schedule, config.optimizer.lr
    total, warmup = config.epochs * steps_per_epoch, schedule.warmup_epochs * steps_per_epoch
    if step < warmup:
        return base * (step + 1) / (warmup + 1)
    if schedule.kind == "cosine":
        return base * 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1.0, total - warmup)))
    if schedule.kind == "step":
        drops = sum(step >= e * steps_per_epoch for e in schedule.epochs) if schedule.epochs else step // schedule.every
        return base * schedule.factor**drops
    return base


def _groups(model: nn.Module, decay: float, decay_norms: bool) -> list[dict]:
    if decay_norms:
        return [{"params": list(model.parameters()), "weight_decay": decay}]
    spared = {id(p) for m in model.modules() if isinstance(m, _NORMS) for p in m.parameters(recurse=False)}
    norms = [p for p in model.parameters() if id(p) in spared]
    rest = [p for p in model.parameters() if id(p) not in spared]
    groups = ({"params": rest, "weight_decay": decay}, {"params": norms, "weight_decay": 0.0})
    return [group for group in groups if group["params"]]
