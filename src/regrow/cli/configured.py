"""What the commands that take a configuration share."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import Any

from regrow import config as configuration
from regrow import presets
from regrow.cli.width import columns, fitted
from regrow.config import Config, Optimizer, Sparse
from regrow.errors import ConfigurationError
from regrow.published import paths_of, suited

EPILOGUE = """
Any key of the configuration can be set: --density 0.1, --lr 0.05, --optimizer.momentum 0.8, --option.prune_rate 0.3 (the
method's own options), --model_options.dropout 0. `regrow train --list` shows the presets, `--show` the effective configuration.
"""
HEADING = "keys and defaults (the section may be left out where only one has the key):"


def add_configuration(parser: argparse.ArgumentParser, execution: str = Sparse().execution) -> None:
    """A preset or file, and the command's own way to compute; overrides are taken out of the command line before by :func:`separate`."""
    parser.add_argument("configuration", nargs="?", help="a preset (see `regrow train --list`) or a TOML file")
    parser.set_defaults(overrides={})
    parser.epilog = "\n".join([fitted(EPILOGUE, columns()), "", HEADING, *_groups(execution)])


def _groups(execution: str) -> list[str]:
    """The keys of a configuration with their defaults, one paragraph per section."""
    plain = configuration.as_dict(Config(sparse=Sparse(execution=execution)))
    groups = {"run": {key: value for key, value in plain.items() if not isinstance(value, dict)}}
    groups |= {f"[{key}]": value for key, value in plain.items() if isinstance(value, dict) and value}
    lines = []
    for name, values in groups.items():
        text = "  ".join(f"{key}={_short(value)}" for key, value in values.items() if not isinstance(value, dict))
        lines += [
            f"  {name}",
            textwrap.fill(
                text, min(110, columns()), initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False
            ),
        ]
    return lines


def _short(value: object) -> str:
    return "''" if value == "" else str(list(value) if isinstance(value, tuple) else value).replace(" ", "").lower()


def read_configuration(options: argparse.Namespace) -> Config:
    """The preset or file with the command line's overrides."""
    return _read(options)[0]


def read_for_training(options: argparse.Namespace) -> Config:
    """The same for a run of its own: where nobody says how to compute, `auto` measures and takes the faster way."""
    config, given = _read(options)
    return config if "sparse.execution" in given or not _may_choose(config) else _with_auto(config)


def _may_choose(config: Config) -> bool:
    """Whether `auto` can do anything: there are missing weights, kernels may leave them out, and it can see the layers."""
    if config.sparse.method == Sparse().method or config.compile:
        return not config.compile
    from regrow.methods import build

    method = build(config.sparse.method, dict(config.sparse.options))
    return method.own_density != 1.0 and not (method.weighting and method.weighting.trains_otherwise)


def _with_auto(config: Config) -> Config:
    return replace(config, sparse=replace(config.sparse, execution="auto"))


def _read(options: argparse.Namespace) -> tuple[Config, set[str]]:
    """A configuration, and the keys that the user has set."""
    if options.configuration is None:
        raise ConfigurationError(f"name a preset or a TOML file; presets: {', '.join(presets.PRESETS)}")
    base, values = presets.read(options.configuration)
    config = configuration.override(base, options.overrides)
    _check_optimizer(config, {**values.get("optimizer", {}), **_given(options.overrides)})
    given = {*paths_of(values), *map(configuration.resolve_key, options.overrides)}
    if config.sparse.method == Sparse().method:
        # Its density is free. Asking other methods takes torch, which `--show` should not wait for.
        return config, given
    from regrow.training.density import settle_density

    config, changed = suited(config, given)
    settled = settle_density(config, "sparse.density" in given)
    if settled.sparse.density != config.sparse.density:
        changed.append(f"no density of {config.sparse.density:g}, which is not its to choose")
    if changed:
        print(f"{config.sparse.method}: {', '.join(changed)}", file=sys.stderr)
    return settled, given


def _given(overrides: Mapping[str, str]) -> dict[str, str]:
    """What a command line says of the optimizer."""
    paths = {configuration.resolve_key(key): text for key, text in overrides.items()}
    return {path.removeprefix("optimizer."): text for path, text in paths.items() if path.startswith("optimizer.")}


def _check_optimizer(config: Config, given: Mapping[str, Any]) -> None:
    """Refuse what the user says of another optimizer than the chosen one; defaults, which saved configurations repeat, may stay."""
    chosen, default = config.optimizer, Optimizer()
    foreign = ("betas",) if chosen.name == "sgd" else ("momentum",)
    for key in foreign:
        if key in given and getattr(chosen, key) != getattr(default, key):
            remedy = "choose adam or adamw" if key == "betas" else "Adam's is the first of optimizer.betas"
            raise ConfigurationError(f"optimizer.{key} means nothing to {chosen.name}: leave it out; {remedy}")


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
            takes_next = rest and not rest[0].startswith("--") and (not _is_flag(key) or _is_value(rest[0], kept))
            value = rest.pop(0) if takes_next else _flag(key)
        found[key] = value
    return kept, found


def _is_value(word: str, kept: list[str]) -> bool:
    """Whether the word behind a flag is its value: yes or no, or anything where command and configuration are named already."""
    named = [other for other in kept if not other.startswith("--")]
    return configuration.is_truth(word) or len(named) > 1


def _is_flag(key: str) -> bool:
    return configuration.kind_of(key) is bool


def _flag(key: str) -> str:
    if not _is_flag(key):
        raise ConfigurationError(f"--{key} needs a value: --{key} VALUE")
    return "true"
