"""What the commands that take a configuration share."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from regrow import config as configuration
from regrow import presets
from regrow.config import Config
from regrow.errors import ConfigurationError

EPILOGUE = """
Any key of the configuration can be set: --density 0.1, --lr 0.05, --optimizer.momentum 0.8, --option.prune_rate 0.3 (the
method's own options), --model_options.dropout 0. `regrow train --list` shows the presets, `--show` the effective configuration.
"""


def add_configuration(parser: argparse.ArgumentParser) -> None:
    """A preset or file, then overrides."""
    parser.add_argument("configuration", nargs="?", help="a preset (see `regrow train --list`) or a TOML file")
    parser.set_defaults(overrides=[])
    parser.epilog = EPILOGUE


def read_configuration(options: argparse.Namespace) -> Config:
    """The preset or file with the command line's overrides."""
    if options.configuration is None:
        raise ConfigurationError(f"name a preset or a TOML file; presets: {', '.join(presets.PRESETS)}")
    return configuration.override(presets.find(options.configuration), pairs(options.overrides))


def pairs(arguments: Sequence[str]) -> dict[str, str]:
    """``--key value``, ``--key=value`` and ``--flag`` as a map.

    Example:
        >>> pairs(["--density", "0.1", "--compile", "--lr=0.05"])
        {'density': '0.1', 'compile': 'true', 'lr': '0.05'}
    """
    found: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        key = rest.pop(0)
        if not key.startswith("--"):
            raise ConfigurationError(f"unexpected argument {key!r}: settings are given as --key value")
        key, equals, value = key.removeprefix("--").partition("=")
        if not equals:
            value = rest.pop(0) if rest and not rest[0].startswith("--") else "true"
        found[key] = value
    return found
