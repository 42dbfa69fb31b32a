"""From a configuration to the things a run is made of."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regrow import data, models
from regrow.api import sparsify
from regrow.arguments import arguments_of
from regrow.config import Config
from regrow.data import Dataset, Form
from regrow.errors import ConfigurationError, RegrowError
from regrow.handle import Handle
from regrow.methods import Method, build
from regrow.randomness import seed_of
from regrow.training.optimisation import build_optimizer
from regrow.training.pretrained import load_weights
from regrow.training.processes import Processes, use_threads
from regrow.training.traffic import SparseTraffic
from regrow.uses import evaluation_mode

# Training images that methods look at when they prune.
_CALIBRATION = 5000


@dataclass
class Parts:
    """Everything a run trains with. ``network`` is the plain model, ``forward`` how it is called (DDP, compiled)."""

    network: nn.Module
    forward: nn.Module
    optimizer: torch.optim.Optimizer
    handle: Handle
    train: Dataset
    validation: Dataset | None
    test: Dataset
    traffic: SparseTraffic | None
    steps_per_epoch: int


def assemble(config: Config, processes: Processes) -> Parts:
    """Data, model, optimizer and masks, all functions of the configuration."""
    use_threads(config.threads)
    train = load_split(config, config.data.train_split)
    validation = load_split(config, "val") if config.data.holds_out else None
    if config.patience and validation is None:
        raise ConfigurationError(
            "patience needs validation images: leave data.train_split at 'train', or set patience = 0"
        )
    test = load_split(config, config.data.test_split)
    steps_per_epoch = train.steps_per_epoch(config.data.batch)
    _check_parts(train, config, processes)
    network = build_model(config, train).to(processes.device)
    check_outputs(config, network, train)
    if config.weights:
        load_weights(network, config.weights)
    optimizer = build_optimizer(network, config)
    handle = make_sparse(config, network, optimizer, steps_per_epoch, train)
    forward, traffic = _wrap(config, network, handle, processes)
    return Parts(network, forward, optimizer, handle, train, validation, test, traffic, steps_per_epoch)


def _check_parts(train: Dataset, config: Config, processes: Processes) -> None:
    try:
        train.batches(0, config.data.batch, world=processes.world)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


def model_options(config: Config, form: Dataset | Form) -> dict[str, Any]:
    """Options of the configured model, with the data's shape and classes where it takes them."""
    options = {"num_classes": form.num_classes, "input_shape": form.shape, **config.model_options}
    known = models.info(config.model).options()
    if known is None:
        return options
    return {key: value for key, value in options.items() if key in known or key in config.model_options}


def build_model(config: Config, form: Dataset | Form) -> nn.Module:
    """The configured model, fitted to the data's shape and classes."""
    network = create_model(config, model_options(config, form))
    # Sparse kernels read weights in ordinary order, and would copy others in every step.
    if config.channels_last and config.sparse.execution != "sparse" and any(p.ndim == 4 for p in network.parameters()):
        network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network


def create_model(config: Config, options: dict[str, Any]) -> nn.Module:
    """The configured model with these options, unfit ones reported as the user's."""
    try:
        return models.create(config.model, seed=config.seed, **options)
    except RegrowError:
        raise
    except (ValueError, TypeError, RuntimeError) as error:
        given = ", ".join(f"{name} = {value!r}" for name, value in config.model_options.items())
        if given:
            raise ConfigurationError(f"model {config.model!r} cannot have model_options {given}: {error}") from error
        if isinstance(error, ValueError):
            raise ConfigurationError(str(error)) from error
        raise


def check_outputs(config: Config, network: nn.Module, form: Dataset | Form) -> None:
    """Refuse a model that does not take the data's images, or has fewer outputs than there are classes."""
    images = torch.zeros(1, *form.shape, device=next(network.parameters()).device)
    shape = "x".join(map(str, form.shape))
    try:
        with evaluation_mode(network), torch.no_grad():
            logits = network(images)
    except RuntimeError as error:
        raise ConfigurationError(f"model {config.model!r} does not take images of {shape}: {error}") from error
    if not isinstance(logits, Tensor) or logits.ndim != 2:
        raise ConfigurationError(f"model {config.model!r} does not give one row of class scores per image of {shape}")
    if logits.shape[1] < form.num_classes:
        raise ConfigurationError(
            f"model {config.model!r} has {logits.shape[1]} outputs, too few for the {form.num_classes} classes of {config.data.name}: "
            "leave model_options.num_classes out"
        )


def make_sparse(
    config: Config, network: nn.Module, optimizer: torch.optim.Optimizer, steps_per_epoch: int, train: Dataset
) -> Handle:
    """``regrow.sparsify`` with the configured arguments."""
    sparse = config.sparse
    method = build(sparse.method, dict(sparse.options))
    if method.rounds is not None:
        raise ConfigurationError(
            f"method {sparse.method!r} trains in rounds: call regrow.sparsify and handle.rewind() from your own loop"
        )
    calibration = _calibration(method.calibration, config, network, train)
    example = torch.zeros(1, *train.shape, device=next(network.parameters()).device)
    return sparsify_as_configured(
        config, method, network, optimizer, steps_per_epoch, calibration, sparse.execution, example, len(train)
    )


def sparsify_as_configured(
    config: Config,
    method: Method,
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    steps_per_epoch: int,
    calibration: Any = None,
    execution: str = "masked",
    example: Tensor | None = None,
    samples: int | None = None,
) -> Handle:
    """``regrow.sparsify`` with a configuration's arguments and a method built from it."""
    sparse = config.sparse
    return sparsify(
        network,
        optimizer,
        method,
        **{
            **arguments_of(sparse),
            "density": None if method.free_of_density else sparse.density,
            "steps": config.epochs * steps_per_epoch,
            "steps_per_epoch": steps_per_epoch,
            "seed": config.seed,
            "execution": execution,
            "costs": _costs(config, example) if method.needs_costs or sparse.macs or sparse.milliseconds else None,
            "calibration": calibration,
            "samples": samples,
        },
    )


def _costs(config: Config, example: Tensor | None) -> Any:
    if config.sparse.macs or (config.sparse.costs == "macs" and not config.sparse.milliseconds):
        return example
    if config.compile:
        raise ConfigurationError(
            "measured costs (sparse.milliseconds, sparse.costs = 'measured') time what layers are fed, which torch.compile hides: leave "
            "out one of them"
        )
    return "measured"


def load_split(config: Config, split: str, augment: bool | None = None) -> Dataset:
    """One split of the configured data; augmented as configured unless said otherwise."""
    settings = config.data
    if augment is None:
        augment = {"auto": None, "on": split.startswith("train"), "off": False}[settings.augment]
    own = data.Normalisation(settings.mean, settings.std) if settings.mean or settings.std else None
    root, size = settings.root or None, settings.image_size
    return data.load(settings.name, split, root=root, image_size=size, augment=augment, normalisation=own)


def _calibration(kind: str | None, config: Config, network: nn.Module, train: Dataset) -> Any:
    """One training batch for methods that prune before training."""
    if kind is None:
        return None
    device = next(network.parameters()).device
    images, labels = (part.to(device) for part in next(train.batches(0, config.data.batch, seed=config.seed)))
    if kind == "input":
        return images[:1]
    if kind == "batches":
        return lambda: _some(train, config, device)

    def loss() -> torch.Tensor:
        # Dropout too must not depend on what happened in the process before.
        torch.default_generator.manual_seed(seed_of(config.seed, "calibration"))
        return nn.functional.cross_entropy(network(images), labels)

    return loss


def _some(train: Dataset, config: Config, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """Some thousand training images, the same ones whenever asked for."""
    found = train.batches(0, config.data.batch, seed=config.seed)
    for images, labels in itertools.islice(found, max(1, _CALIBRATION // config.data.batch)):
        yield images.to(device), labels.to(device)


def _wrap(
    config: Config, network: nn.Module, handle: Handle, processes: Processes
) -> tuple[nn.Module, SparseTraffic | None]:
    forward: nn.Module = torch.compile(network) if config.compile else network  # type: ignore[assignment]
    if processes.world == 1:
        return forward, None
    # DDP rebuilds its buckets after the first step unless it looks for unused parameters; with three and more ranks another
    # order of summation would make a resumed run differ in the last bit.
    keep_order = processes.world > 2
    wrapped = nn.parallel.DistributedDataParallel(forward, find_unused_parameters=keep_order)
    traffic = SparseTraffic(handle)
    traffic.attach(wrapped)
    return wrapped, traffic
