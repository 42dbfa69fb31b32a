"""What the commands that take a configuration share."""

from __future__ import annotations

import argparse
from collections.abc import Container, Sequence

from regrow import config as configuration
from regrow import presets
from regrow.config import Config, Sparse
from regrow.errors import ConfigurationError

EPILOGUE = """
Any key of the configuration can be set: --density 0.1, --lr 0.05, --optimizer.momentum 0.8, --option.prune_rate 0.3 (the
method's own options), --model_options.dropout 0. `regrow train --list` shows the presets, `--show` the effective configuration.
"""


def add_configuration(parser: argparse.ArgumentParser) -> None:
    """A preset or file; overrides are taken out of the command line before by :func:`separate`."""
    parser.add_argument("configuration", nargs="?", help="a preset (see `regrow train --list`) or a TOML file")
    parser.set_defaults(overrides={})
    parser.epilog = EPILOGUE


def read_configuration(options: argparse.Namespace) -> Config:
    """The preset or file with the command line's overrides."""
    if options.configuration is None:
        raise ConfigurationError(f"name a preset or a TOML file; presets: {', '.join(presets.PRESETS)}")
    base, values = presets.read(options.configuration)
    config = configuration.override(base, options.overrides)
    if config.sparse.method == Sparse().method:
        # Its density is free. Asking other methods takes torch, which `--show` should not wait for.
        return config
    from regrow.training.density import settle_density

    given = "density" in values.get("sparse", {}) or "sparse.density" in map(
        configuration.resolve_key, options.overrides
    )
    return settle_density(config, given)


def separate(arguments: Sequence[str], own: Container[str]) -> tuple[list[str], dict[str, str]]:
    """Split a command line into what argparse knows (``own`` options) and ``--key value``, ``--key=value`` or ``--flag`` overrides.

    Example:
        >>> separate(["--density", "0.1", "demo", "--compile", "--out", "runs/a", "--lr=0.05"], {"--out"})
        (['demo', '--out', 'runs/a'], {'density': '0.1', 'compile': 'true', 'lr': '0.05'})
    """
    kept: list[str] = []
    found: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        key, equals, value = rest.pop(0).partition("=")
        if not key.startswith("--") or key in own:
            kept.append(key + equals + value)
            if key in own and not equals and rest and not rest[0].startswith("--"):
                kept.append(rest.pop(0))
            continue
        key = key.removeprefix("--")
        if not equals:
            takes_next = rest and not rest[0].startswith("--") and (not _is_flag(key) or rest[0] in ("true", "false"))
            value = rest.pop(0) if takes_next else _flag(key)
        found[key] = value
    return kept, found


def _is_flag(key: str) -> bool:
    return configuration.kind_of(key) is bool


def _flag(key: str) -> str:
    if not _is_flag(key):
        raise ConfigurationError(f"--{key} needs a value: --{key} VALUE")
    return "true"
