"""The configuration of a run: typed, checked, from presets, TOML files and command-line overrides.

Nothing here imports torch.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import tomllib
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from regrow.advice import refuse_device, refuse_percentage
from regrow.arguments import Sparse as Sparse
from regrow.defaults import as_stored, differing, named
from regrow.errors import ConfigurationError, nearest, unknown
from regrow.ranges import check_values, value_at

_LARGEST = 1 << 20
_NO_PART = frozenset(
    {"checkpoint_seconds", "keep_checkpoints", "tensorboard", "max_steps", "patience", "measure_speedup"}
)
# Hashed with their defaults too, as the first stored runs were. Closed: a new key does not belong here.
_FIRST_KEYS = frozenset({
    "model", "model_options", "epochs", "seed", "label_smoothing", "precision", "channels_last", "compile", "threads", "log_every",
    "evaluate_every",
    "data.name", "data.root", "data.batch", "data.eval_batch", "data.augment", "data.image_size", "data.train_split", "data.test_split",
    "optimizer.name", "optimizer.lr", "optimizer.momentum", "optimizer.nesterov", "optimizer.weight_decay", "optimizer.decay_norms",
    "optimizer.clip_norm",
    "schedule.kind", "schedule.factor", "schedule.every", "schedule.epochs", "schedule.warmup_epochs",
    "sparse.method", "sparse.density", "sparse.scope", "sparse.distribution", "sparse.update_every", "sparse.window_tolerance",
    "sparse.momentum_source", "sparse.execution", "sparse.native_step", "sparse.options",
})  # fmt: skip


@dataclass(frozen=True)
class Data:
    """What to train on.

    ``batch`` is the global batch, shared by all ranks. ``augment = "auto"`` follows the data set's publication. ``mean`` and ``std`` per
    channel, of values from 0 to 1, normalise images in place of the data set's own.
    """

    name: str = "mnist"
    root: str = ""
    batch: int = 100
    eval_batch: int = 1000
    augment: str = "auto"
    image_size: int = 224
    train_split: str = "train"
    test_split: str = "test"
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    @property
    def holds_out(self) -> bool:
        """Whether images of the training set are held out for validation."""
        return self.train_split == "train" and self.test_split != "val"


@dataclass(frozen=True)
class Optimizer:
    """SGD (``momentum``, ``nesterov``), Adam or AdamW (``betas``); ``decay_norms = false`` spares norms the weight decay."""

    name: str = "sgd"
    lr: float = 0.1
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 5e-4
    decay_norms: bool = True
    clip_norm: float = 0.0
    betas: tuple[float, ...] = (0.9, 0.999)


@dataclass(frozen=True)
class Schedule:
    """Learning rate over time: ``step`` (every so many steps, or at epochs), ``cosine`` to zero, or ``constant``."""

    kind: str = "step"
    factor: float = 0.1
    every: int = 25000
    epochs: tuple[float, ...] = ()
    warmup_epochs: float = 0.0


@dataclass(frozen=True)
class Config:
    """One training run.

    ``weights`` is a run or safetensors file to start from.
    ``max_steps = 0`` runs all epochs; schedules always span ``epochs``. ``threads = 0`` leaves torch's choice.
    ``measure_speedup`` records what sparse convolutions could save, at the price of a slower run. With ``patience`` above 0 a run ends
    after so many validations in a row that are no better than naming one class.
    """

    model: str = "lenet300"
    model_options: dict[str, Any] = field(default_factory=dict)
    weights: str = ""
    epochs: int = 100
    max_steps: int = 0
    seed: int = 0
    label_smoothing: float = 0.0
    precision: str = "fp32"
    channels_last: bool = True
    compile: bool = False
    threads: int = 0
    log_every: int = 100
    evaluate_every: int = 1
    patience: int = 0
    checkpoint_seconds: float = 60.0
    keep_checkpoints: int = 2
    tensorboard: bool = False
    measure_speedup: bool = False
    data: Data = field(default_factory=Data)
    optimizer: Optimizer = field(default_factory=Optimizer)
    schedule: Schedule = field(default_factory=Schedule)
    sparse: Sparse = field(default_factory=lambda: Sparse())

    def __post_init__(self) -> None:
        check_values(self)

    def identity(self) -> str:
        """Hash of everything that decides the course of training.

        Left out is what only keeps or measures it (checkpoints, TensorBoard, speed-ups), and ``max_steps`` and ``patience``, so that a run
        that ended early can go on. How often to log or evaluate counts: it decides which rows a run has. Keys that came after the first
        stored runs count where they are not at their default, so that those runs keep their hash; the method's options where they are
        not at their first default.
        """
        plain: dict[str, Any] = {}
        for path in _paths(Config):
            value = value_at(self, path)
            if path == "sparse.options":
                value = differing(self.sparse.method, value)
            if path not in _NO_PART and (path in _FIRST_KEYS or value != value_at(Config(), path)):
                *section, key = path.split(".")
                (plain.setdefault(section[0], {}) if section else plain)[key] = value
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:10]

    def folder_name(self) -> str:
        """What a run is, a hash of the rest, where it ends if early, and whether it measures speed-ups: one name per result.

        Example:
            >>> Config(max_steps=300).folder_name().rsplit("-", 2)[0], Config(max_steps=300).folder_name()[-4:]
            ('lenet300-sparse-momentum-0.05-s0', '-300')
        """
        model = self.model.replace(":", "-").replace("/", "-")
        end = f"-{self.max_steps}" * bool(self.max_steps) + "-measured" * self.measure_speedup
        return f"{model}-{self.sparse.method}-{self.sparse.density:g}-s{self.seed}-{self.identity()}{end}"


def as_dict(config: Any) -> dict[str, Any]:
    """Nested plain values."""
    return dataclasses.asdict(config)


def changes(config: Config) -> dict[str, Any]:
    """What differs from the defaults, by path.

    Example:
        >>> changes(Config(seed=1, sparse=Sparse(density=0.1)))
        {'seed': 1, 'sparse.density': 0.1}
    """
    return {
        path: value_at(config, path) for path in _paths(Config) if value_at(config, path) != value_at(Config(), path)
    }


def differences(first: Config, second: Config) -> str:
    """Where two configurations differ, for messages.

    Example:
        >>> differences(Config(seed=1), Config(seed=2))
        'seed = 1, not 2'
    """
    first, second = (with_options(each, named) for each in (first, second))
    pairs = ((path, value_at(first, path), value_at(second, path)) for path in _paths(Config))
    return ", ".join(f"{path} = {toml_value(a)}, not {toml_value(b)}" for path, a, b in pairs if a != b)


def with_options(config: Config, form: Callable[[str, Mapping[str, Any]], dict[str, Any]]) -> Config:
    """The same with the method's options in another form (`regrow.defaults`)."""
    options = form(config.sparse.method, config.sparse.options)
    return dataclasses.replace(config, sparse=dataclasses.replace(config.sparse, options=options))


def from_dict(values: Mapping[str, Any], base: Config | None = None) -> Config:
    """A configuration from nested values on top of ``base``; unknown keys and wrong types are errors."""
    return _merge(base or Config(), values, "")


def load(path: str | Path, base: Config | None = None) -> Config:
    """A configuration from a TOML file."""
    return from_dict(read_toml(path), base)


def load_stored(path: str | Path) -> Config:
    """The configuration that a run wrote, of any release."""
    config = load(path)
    return with_options(config, as_stored)


def read_toml(path: str | Path) -> dict[str, Any]:
    """The values of a TOML file, or an error that names it."""
    try:
        with open(path, "rb") as file:
            content = file.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise ConfigurationError(f"{path} is too large for a configuration: more than {_LARGEST:,} bytes")
        return tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigurationError(f"{path} is not valid TOML: {error}") from error
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error


def override(config: Config, pairs: Mapping[str, str]) -> Config:
    """Apply ``key -> text`` pairs of a command line; a key is a path (``sparse.density``) or a leaf name that is unique."""
    for key, text in pairs.items():
        path = resolve_key(key)
        hint = _hint(path)
        values: dict[str, Any] = {}
        node = values
        *parents, leaf = path.split(".")
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = _parse(text, hint)
        config = from_dict(values, config)
    return config


def resolve_key(key: str) -> str:
    """The full path of a key given in short or with dashes.

    Example:
        >>> resolve_key("density"), resolve_key("max-steps"), resolve_key("option.prune_rate")
        ('sparse.density', 'max_steps', 'sparse.options.prune_rate')
    """
    name = key.replace("-", "_")
    for short, full in (("option.", "sparse.options."), ("sparse.option.", "sparse.options.")):
        if name.startswith(short):
            return full + name.removeprefix(short)
    if name.startswith(("sparse.options.", "model_options.")):
        return name
    paths = _paths(Config)
    if name in paths:
        return name
    refuse_device(key)
    matches = [path for path in paths if path.rsplit(".", 1)[-1] == name]
    if len(matches) == 1:
        return matches[0]
    if name in _sections():
        raise ConfigurationError(f"{name} is a section: name one of its keys, {_keys_of(name)}")
    if matches:
        raise ConfigurationError(f"key {key!r} is ambiguous: say {' or '.join(matches)}")
    keys = [*paths, *(p.rsplit(".", 1)[-1] for p in paths)]
    if nearest(key, keys) is None:
        raise ConfigurationError(f"unknown configuration key {key!r}: `regrow train --help` lists all {len(paths)}")
    raise unknown("configuration key", key, keys)


def kind_of(key: str) -> Any:
    """The type of a key given in any of its forms; None for an option of a method or model."""
    return _hint(resolve_key(key))


def to_toml(config: Config) -> str:
    """The configuration as a TOML file; options whose default has changed are named."""
    plain = as_dict(with_options(config, named))
    lines = [f"{k} = {toml_value(v)}" for k, v in plain.items() if not isinstance(v, dict)]
    for section, values in plain.items():
        if isinstance(values, dict):
            lines += ["", f"[{section}]"]
            lines += [f"{_toml_key(k)} = {toml_value(v)}" for k, v in values.items()]
    return "\n".join(lines) + "\n"


def toml_value(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_toml_key(k)} = {toml_value(v)}" for k, v in value.items()) + " }" if value else "{}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    # JSON's strings are TOML's, but for pairs of surrogates and the delete character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml_key(key: str) -> str:
    return key if key.isascii() and key.replace("_", "a").replace("-", "a").isalnum() else toml_value(key)


def _merge(base: Any, values: Mapping[str, Any], prefix: str) -> Any:
    hints = get_type_hints(type(base))
    known = {f.name for f in fields(base)}
    changes = {}
    for key, value in values.items():
        path = prefix + key
        if key not in known:
            raise _unknown_key(path, value, [prefix + k for k in known] if prefix else _paths(type(base)))
        current = getattr(base, key)
        if is_dataclass(current):
            if not isinstance(value, Mapping):
                raise ConfigurationError(f"{path} is a section: write [{path}] with its keys, {_keys_of(path)}")
            changes[key] = _merge(current, value, path + ".")
        elif isinstance(current, dict) and isinstance(value, Mapping):
            changes[key] = {**current, **value}
        else:
            changes[key] = _typed(value, hints[key], path)
    return dataclasses.replace(base, **changes)


def _unknown_key(path: str, value: Any, valid: list[str]) -> ConfigurationError:
    if isinstance(value, Mapping) and "." not in path:
        return unknown("section", path, [*_sections(), "model_options"])
    leaves = {inner.rsplit(".", 1)[-1]: inner for inner in valid}
    if "." not in path and (near := nearest(path, leaves)) and "." in leaves[near]:
        section = leaves[near].split(".", 1)[0]
        return ConfigurationError(
            f"unknown configuration key {path!r}: did you mean {near!r} in the section [{section}]?"
        )
    return unknown("configuration key", path, valid)


def _typed(value: Any, hint: Any, path: str) -> Any:
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError as error:
            raise ConfigurationError(
                f"{path} must be a number below 1e308, got one of {len(str(value))} digits"
            ) from error
    if get_origin(hint) is tuple:
        if not isinstance(value, (list, tuple)):
            raise ConfigurationError(f"{path} must be a list, got {value!r}")
        return tuple(_typed(v, get_args(hint)[0], path) for v in value)
    wanted = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (get_origin(hint) or hint,)
    if float in wanted:
        refuse_percentage(path, value)
    if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
        names = " or ".join(_KINDS.get(w, w.__name__) for w in wanted)
        several = isinstance(value, str) and "," in value and not {str, bool} & set(wanted)
        advice = "; for several values say regrow sweep --grid KEY=A,B" if several else ""
        raise ConfigurationError(f"{path} must be {names}, got {value!r}{advice}")
    return value


_KINDS = {bool: "true or false", float: "a number", int: "a whole number", str: "text"}
_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def is_truth(text: str) -> bool:
    """Whether a word of a command line can be the value of a key that is true or false."""
    return text.lower() in _WORDS


def _parse(text: str, hint: Any) -> Any:
    if hint is str:
        return text
    if hint is bool:
        return _WORDS.get(text.lower(), text)
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return text


def _hint(path: str) -> Any:
    if path.startswith(("sparse.options.", "model_options.")):
        return None
    kind: Any = Config
    for part in path.split("."):
        kind = get_type_hints(kind)[part]
    return kind


def _sections() -> dict[str, Any]:
    return {name: kind for name, kind in get_type_hints(Config).items() if is_dataclass(kind)}


def _keys_of(section: str) -> str:
    """All keys of a section, the one most often meant first."""
    first, *others = (item.name for item in fields(_sections()[section]))
    return f"{section}.{first} or one of {', '.join(others)}"


def _paths(kind: Any, prefix: str = "") -> list[str]:
    hints, paths = get_type_hints(kind), []
    for item in fields(kind):
        inner = hints[item.name]
        paths += _paths(inner, f"{prefix}{item.name}.") if is_dataclass(inner) else [prefix + item.name]
    return paths
