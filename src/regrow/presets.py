"""Settings by name: the paper's (sections 3.3 and appendix C of Dettmers & Zettlemoyer 2019) as published, and what to start from."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from regrow import config as configuration
from regrow.config import Config, Data, Optimizer, Schedule, Sparse
from regrow.defaults import LETTER
from regrow.errors import ConfigurationError, unknown
from regrow.training.folder import RunFolder

# Not 0 but so little that growth does not notice (docs/growth_window.md), and the value of all stored runs.
_WINDOW = 1e-3


def _letter(density: float, **options: Any) -> Sparse:
    """Sparse momentum as published: grown weights start at once, and all of their momentum is collected."""
    return Sparse(density=density, window_tolerance=_WINDOW, options={**options, **LETTER})


_MNIST = Config(
    epochs=100,
    data=Data("mnist", batch=100),
    optimizer=Optimizer(lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4),
    schedule=Schedule("step", factor=0.1, every=25_000),
    sparse=_letter(0.05),
)
_CIFAR = replace(
    _MNIST, epochs=250, data=Data("cifar10", batch=128), schedule=Schedule("step", factor=0.1, every=30_000)
)
_IMAGENET = Config(
    model="resnet50",
    epochs=100,
    data=Data("imagenet", batch=256, eval_batch=256, test_split="val"),
    optimizer=Optimizer(lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4),
    schedule=Schedule("step", factor=0.1, epochs=(30.0, 60.0, 90.0)),
    sparse=_letter(0.15626087),
)
# The released log of the 10% run has batches of 288; learning rate per sample as published, 0.1 for 256.
_TUNED = replace(
    _IMAGENET,
    model_options={"init": "fan_in"},
    data=replace(_IMAGENET.data, batch=288),
    label_smoothing=0.1,
    optimizer=Optimizer(lr=0.1125, momentum=0.9, nesterov=False, weight_decay=1e-4, decay_norms=False),
    schedule=Schedule("cosine", warmup_epochs=5.0),
    sparse=_letter(0.1, prune_rate=0.5),
)
# DSR's protocol for WRN-28-2: all 50,000 training images, its own normalisation, first convolution, shortcuts and last layer dense.
_DSR_MEAN, _DSR_STD = (tuple(v / 255 for v in values) for values in ((125.3, 123.0, 113.9), (63.0, 62.1, 66.7)))
_WRN28 = replace(
    _CIFAR,
    model="wrn-28-2",
    model_options={"dropout": 0.0},
    epochs=200,
    data=Data("cifar10", batch=100, train_split="train+val", mean=_DSR_MEAN, std=_DSR_STD),
    schedule=Schedule("step", factor=0.2, epochs=(60.0, 120.0, 160.0)),
    sparse=replace(_letter(0.1), scope="partially-dense-cifar"),
)


def _cifar(model: str, density: float) -> Config:
    return replace(_CIFAR, model=model, sparse=_letter(density))


PUBLISHED: dict[str, Config] = {
    "mnist-lenet300": replace(_MNIST, model="lenet300"),
    "mnist-lenet300-bn": replace(_MNIST, model="lenet300-bn"),
    "mnist-lenet5": replace(_MNIST, model="lenet5"),
    "cifar-alexnet-s": _cifar("alexnet-s", 0.1),
    "cifar-alexnet-b": _cifar("alexnet-b", 0.1),
    "cifar-vgg16-c": _cifar("vgg16-c", 0.05),
    "cifar-vgg16-d": _cifar("vgg16-d", 0.05),
    "cifar-vgg16-like": _cifar("vgg16-like", 0.03),
    "cifar-wrn-16-8": _cifar("wrn-16-8", 0.05),
    "cifar-wrn-16-10": _cifar("wrn-16-10", 0.05),
    "cifar-wrn-22-8": _cifar("wrn-22-8", 0.05),
    "cifar-wrn-28-2": _WRN28,
    "imagenet-resnet50": _IMAGENET,
    "imagenet-resnet50-20": replace(_IMAGENET, sparse=_letter(0.25626087)),
    "imagenet-resnet50-tuned": _TUNED,
}
"""The paper's settings to the letter: what `regrow reproduce` runs."""

# At the published 0.1 four of ten runs of LeNet-5-Caffe collapse, at 0.05 none of ten (docs/probes.md).
_LENET5 = replace(PUBLISHED["mnist-lenet5"], optimizer=replace(_MNIST.optimizer, lr=0.05))
_DEMO = replace(_MNIST, model="lenet300", epochs=20, data=Data("mnist-sample", batch=100), checkpoint_seconds=10.0)


def _with_defaults(config: Config) -> Config:
    """The same with the defaults of `regrow.sparsify` in place of the paper's letter."""
    options = {key: value for key, value in config.sparse.options.items() if key not in LETTER}
    sparse = replace(config.sparse, window_tolerance=Sparse().window_tolerance, options=options)
    return replace(config, sparse=sparse)


PRESETS: dict[str, Config] = {
    name: _with_defaults(config) for name, config in {"demo": _DEMO, **PUBLISHED, "mnist-lenet5": _LENET5}.items()
}
"""What commands start from: as published, but for how grown weights begin and the growth window, for what collapses, and a demo."""


def find(name: str) -> Config:
    """A preset by name, or a configuration from a TOML file (which may start from a preset: ``preset = "..."``)."""
    return read(name)[0]


def read(name: str) -> tuple[Config, dict[str, Any]]:
    """As :func:`find`, with the values that the user's file itself sets; none for a preset."""
    if name in PRESETS:
        return PRESETS[name], {}
    path = Path(name)
    if path.is_dir():
        raise ConfigurationError(f"{name} is a folder: name a TOML file{_inside(path)}, or a preset")
    if path.suffix == ".toml":
        if not path.exists():
            raise ConfigurationError(f"{name}: no such file{_near(path)}; `regrow train --list` shows the presets")
        return _from_file(path)
    raise unknown("preset", name, PRESETS)


def _inside(folder: Path) -> str:
    saved = RunFolder(folder).config
    return f", such as {saved}" if saved.is_file() else ""


def _near(path: Path) -> str:
    """The file beside a missing one that may have been meant."""
    near = get_close_matches(path.stem, [found.stem for found in path.parent.glob("*.toml")], n=1)
    return f" (did you mean {path.with_stem(near[0])}?)" if near else ""


def _from_file(path: Path) -> tuple[Config, dict[str, Any]]:
    if RunFolder(path.parent).config == path and RunFolder(path.parent).environment.is_file():
        return configuration.load_stored(path), configuration.read_toml(path)
    values = configuration.read_toml(path)
    preset = values.pop("preset", None)
    if preset is None:
        return configuration.from_dict(values), values
    if not isinstance(preset, str) or preset not in PRESETS:
        raise unknown("preset", str(preset), PRESETS)
    return configuration.from_dict(values, PRESETS[preset]), values
