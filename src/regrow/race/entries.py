"""Who races: settings as words of a command line, and the configuration of each. Nothing here imports torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from regrow import config as configuration
from regrow import presets
from regrow.config import Config
from regrow.errors import ConfigurationError, unknown

DENSE = "dense"


@dataclass(frozen=True)
class Entry:
    """One setting and seed: its label, and the run it stands for."""

    label: str
    config: Config

    @property
    def folder(self) -> str:
        """A folder name that says what it is and differs between configurations."""
        word = re.sub(r"[^a-z0-9.]+", "-", self.label.lower()).strip("-")
        return f"{word}-s{self.config.seed}-{self.config.identity()}"


def base_of(name: str, overrides: Mapping[str, str]) -> Config:
    """The configuration that all entries share: of a preset, a TOML file, or the first preset of a data set.

    With other epochs than the preset's, steps of the learning rate keep their place in the run.
    """
    if name in presets.PRESETS or name.endswith(".toml"):
        base = presets.find(name)
    else:
        found = [config for config in presets.PRESETS.values() if config.data.name == name]
        if not found:
            raise unknown(
                "data set or preset", name, [*presets.PRESETS, *{c.data.name for c in presets.PRESETS.values()}]
            )
        base = found[0]
    config = configuration.override(base, overrides)
    if config.schedule.every == base.schedule.every and config.epochs != base.epochs:
        every = max(1, round(base.schedule.every * config.epochs / base.epochs))
        config = replace(config, schedule=replace(config.schedule, every=every))
    return config


def entries_of(base: Config, settings: str, seeds: int, execution: str) -> list[Entry]:
    """``dense,rigl@0.1:distribution=uniform,sparse-momentum@0.1:macs=0.05`` times seeds: METHOD@DENSITY and keys of the configuration.

    Example:
        >>> [entry.label for entry in entries_of(Config(), "dense,set@0.1:lr=0.05", 1, "sparse")]
        ['dense', 'set@0.1:lr=0.05']
    """
    words = [word.strip() for word in settings.split(",") if word.strip()]
    if not words or len(set(words)) != len(words):
        raise ConfigurationError(
            f"--settings takes different settings like dense,sparse-momentum@0.1, got {settings!r}"
        )
    pairs = [(word, _configured(base, word, execution)) for word in words]
    return [Entry(word, replace(config, seed=config.seed + seed)) for seed in range(seeds) for word, config in pairs]


def _configured(base: Config, word: str, execution: str) -> Config:
    head, *changes = word.split(":")
    method, _, density = head.partition("@")
    if (method == DENSE) == bool(density):
        raise ConfigurationError(f"setting {word!r}: write dense, or METHOD@DENSITY like sparse-momentum@0.1")
    own = {"sparse.method": method, "sparse.density": density or "1.0"}
    own |= {} if method == DENSE else {"sparse.execution": execution}
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals:
            raise ConfigurationError(f"setting {word!r}: {change!r} is no KEY=VALUE")
        own[_known(key)] = value
    config = configuration.override(base, own)
    # Slices save by themselves: a checkpoint in the middle of one would lose its seconds.
    return replace(config, checkpoint_seconds=float("inf"), evaluate_every=10**9, patience=0)


def _known(key: str) -> str:
    """A key of the configuration, or else an option of the method."""
    try:
        return configuration.resolve_key(key)
    except ConfigurationError:
        return f"option.{key}"
