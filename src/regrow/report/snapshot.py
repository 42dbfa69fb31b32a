"""The network of a run's newest checkpoint: layers, masks, work, activations.

What cannot be had (no checkpoint yet, data that cannot be read here) is left out and named in ``notices``.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from regrow import models
from regrow.analysis.activations import input_densities
from regrow.analysis.sizes import EmptyChannels, empty_channels
from regrow.config import Config
from regrow.data import Dataset
from regrow.data.catalogue import IMAGENET, find
from regrow.data.errors import DataError
from regrow.data.fetch import get
from regrow.errors import ScheduleWarning, StateError
from regrow.handle import Handle
from regrow.marks import count_of
from regrow.methods import build
from regrow.models.cost import ModelCost, cost
from regrow.report.reading import RunFiles
from regrow.scope import is_shortcut
from regrow.topology.initial import at_random
from regrow.training.checkpoint import Saved
from regrow.training.folder import RunFolder
from regrow.training.optimisation import build_optimizer
from regrow.training.resume import refusing
from regrow.training.setup import build_model, load_split, sparsify_as_configured
from regrow.training.stored import newest

_MOST_IMAGES, _FEWEST_IMAGES, _MOST_MACS = 256, 8, 5e10


@dataclass(frozen=True)
class LayerRow:
    """One convolution or linear layer, or another sparse weight.

    ``group`` is ``conv``, ``shortcut`` (1x1 convolutions beside residual blocks), ``linear`` or ``other``.
    """

    name: str
    group: str
    shape: tuple[int, ...]
    numel: int
    nonzeros: int
    sparse: bool
    reason: str
    macs: int | None
    empty: EmptyChannels
    input_density: float | None

    @property
    def density(self) -> float:
        """Share of weights present."""
        return self.nonzeros / self.numel

    @property
    def kept_macs(self) -> float | None:
        """MACs of the present weights."""
        return None if self.macs is None else self.macs * self.density


@dataclass
class Snapshot:
    """State at ``step``; ``rows`` is empty and ``step`` None where there is no checkpoint.

    ``reach`` is the share of each layer's weights that receive gradients, for methods with shadow weights. The handle holds its
    optimizer weakly, hence it is kept here.
    """

    step: int | None
    handle: Handle
    optimizer: Optimizer
    table: ModelCost
    rows: list[LayerRow] = field(default_factory=list)
    images: int = 0
    split: str = ""
    reach: dict[str, float] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)


def take(files: RunFiles) -> Snapshot:
    """Rebuild the run's network from its newest whole checkpoint."""
    config = files.config
    notices: list[str] = []
    dataset = _dataset(config, notices)
    known = models.info(config.model)
    # Without the data the model's published form is tried; a checkpoint of another shape says so when it is loaded.
    like: Any = dataset or SimpleNamespace(shape=known.input_shape, num_classes=known.num_classes)
    network = build_model(config, like)
    optimizer = build_optimizer(network, config)
    found = newest(files.folder, config)
    with refusing(RunFolder(files.folder).checkpoints):
        per_epoch = files.steps_per_epoch or _steps_per_epoch(config, found)
    table = cost(network, tuple(like.shape))
    handle = _sparsify(config, network, optimizer, per_epoch, torch.zeros(1, *like.shape))
    shot = Snapshot(None, handle, optimizer, table, notices=notices)
    if found is None:
        notices.append("There is no checkpoint yet, so the layer table and activation densities are missing.")
        return shot
    try:
        with refusing(RunFolder(files.folder).checkpoints):
            network.load_state_dict(found.weights)
            handle.load_state_dict(found.state["sparse"])
    except StateError:
        if dataset is not None:
            raise
        notices.append("Without the data the network's shape is unknown, so the layer table is missing.")
        return shot
    shot.step = found.step
    inputs = {} if dataset is None else _measure(shot, config, dataset)
    shot.rows = _rows(handle, shot.table, inputs)
    shot.reach = {
        s.name.removesuffix(".weight"): _share(s.reach.mask) for s in handle.parameters if s.reach is not None
    }
    return shot


def _dataset(config: Config, notices: list[str]) -> Dataset | None:
    """Validation data, or test data where nothing was held out; never from the network."""
    settings = config.data
    record = find(settings.name)
    try:
        if record is not None and record is not IMAGENET:
            get(record.name, settings.root or None, source="local")
        return load_split(config, "val" if settings.holds_out else settings.test_split, augment=False)
    except DataError:
        # The page must not tell about the machine's folders, as the error may.
        notices.append(
            "Activation densities were not measured, because the data cannot be read here: `regrow data check` says why."
        )
        return None


def _steps_per_epoch(config: Config, found: Saved | None) -> int:
    """From a checkpoint that is older than the first row; a static method, which stores none, needs none."""
    steps = None if found is None else found.state["sparse"]["identity"]["steps"]
    return max(1, (steps or 0) // config.epochs)


def _sparsify(config: Config, network: nn.Module, optimizer: Optimizer, per_epoch: int, example: Tensor) -> Handle:
    """The run's handle; first masks that need data are replaced by random ones, since a checkpoint follows."""
    method = build(config.sparse.method, dict(config.sparse.options))
    if method.calibration is not None:
        first = method.initial if method.calibration == "batches" else at_random
        method = replace(method, initial=first, calibration=None)
    if method.needs_costs:
        method = replace(method, needs_costs=False)  # prices matter to topology updates only
    with warnings.catch_warnings():
        # The run was warned of its schedule when it started.
        warnings.simplefilter("ignore", ScheduleWarning)
        how = "sparse" if config.sparse.storage == "compact" else "masked"
        return sparsify_as_configured(
            config, method, network, optimizer, per_epoch, execution=how, example=example, samples=1
        )


def _measure(shot: Snapshot, config: Config, dataset: Dataset) -> dict[str, float]:
    affordable = max(_FEWEST_IMAGES, int(_MOST_MACS // max(shot.table.macs, 1)))
    images, _ = next(dataset.batches(batch_size=min(len(dataset), config.data.eval_batch, _MOST_IMAGES, affordable)))
    shot.images, shot.split = len(images), "validation" if dataset.split == "val" else dataset.split
    return input_densities(shot.handle.model, images)


def _rows(handle: Handle, table: ModelCost, inputs: Mapping[str, float]) -> list[LayerRow]:
    """Sparse layers as the handle splits them, and the dense convolutions and linear layers, in the model's order."""
    counted = {layer.name: layer for layer in table.sparsifiable}
    masks, reasons = handle.masks, {d.name: d.reason for d in handle.decisions}
    by_module: dict[str, list[Any]] = {}
    for layer in handle.network.layers:
        by_module.setdefault(layer.parameter_name.removesuffix(".weight"), []).append(layer)
    rows = []
    for name in dict.fromkeys([*(d.name for d in handle.decisions), *counted]):
        known = counted.get(name)
        for layer in by_module.get(name, ()):
            rows.append(_row(layer.name, masks[layer.name], known, inputs.get(name), True, "in scope"))
        if name not in by_module and known is not None and known.weight_shape:
            full = handle.model.get_parameter(f"{name}.weight" if name else "weight")
            present = torch.ones_like(full, dtype=torch.bool)
            rows.append(_row(name, present, known, inputs.get(name), False, reasons.get(name, "")))
    return rows


def _row(name: str, mask: Tensor, known: Any, given: float | None, sparse: bool, reason: str) -> LayerRow:
    macs = None
    if known is not None and known.macs is not None:
        macs = round(known.macs * mask.numel() / known.weights)
    return LayerRow(
        name=name,
        group=_group(name, known, mask),
        shape=tuple(mask.shape),
        numel=mask.numel(),
        nonzeros=count_of(mask),
        sparse=sparse,
        reason=reason,
        macs=macs,
        empty=empty_channels(mask),
        input_density=given,
    )


def _group(name: str, known: Any, mask: Tensor) -> str:
    if known is None:
        return "other"
    return "shortcut" if known.kind == "conv" and is_shortcut(name, mask.shape) else known.kind


def _share(mask: Tensor) -> float:
    return count_of(mask) / mask.numel()
