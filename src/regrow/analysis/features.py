"""Class specialisation: does a channel respond to one class, or to many?

    A[c, k] = sum of |F[n, c, y, x]| over samples n of class k and positions, per sample of the class
    u_c     = sum_k A[c, k] / sum_{c', k} A[c', k]                 what channel c contributes to its layer
    S_c     = max_k A[c, k] / sum_k A[c, k]                        1/K for an indifferent channel, 1 for a pure one

Channels that together contribute less than 5% of a layer are left out. F are the outputs of the ReLUs that follow the batch norm of
a convolution.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from regrow.analysis.statistics import holm, kruskal_wallis
from regrow.models.wide_resnet import WideResNet
from regrow.uses import evaluation_mode

WEAK = 0.05
BINS = np.linspace(0.09, 0.51, 50)


@dataclass
class Activity:
    """Summed |activation| per channel and class of one layer, and the samples of each class."""

    sums: np.ndarray
    samples: np.ndarray


@dataclass(frozen=True)
class LayerTest:
    """Dense against sparse in one layer, or pooled; ``corrected`` is p after Holm's correction over layers.

    ``statistic`` and ``p`` are None where one network has no channel left, or all values are equal.
    """

    layer: str
    dense_channels: int
    sparse_channels: int
    dense_mean: float
    sparse_mean: float
    statistic: float | None
    p: float | None
    corrected: float | None = None


@dataclass(frozen=True)
class Comparison:
    """The pooled test and one test per layer."""

    pooled: LayerTest
    layers: list[LayerTest] = field(default_factory=list)


@torch.no_grad()
def activity(model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], num_classes: int = 10) -> dict[str, Activity]:
    """Responses of every feature layer to every class, in evaluation mode; the model is left as it was.

    AlexNet has 5 such layers, VGG16 13, WRN-28-2 24.
    """
    sums: dict[str, Tensor] = {}
    samples = torch.zeros(num_classes, dtype=torch.float64)
    with evaluation_mode(model), _responses(model) as seen:
        for images, labels in batches:
            seen.clear()
            model(images)
            samples += torch.bincount(labels.cpu(), minlength=num_classes)
            for name, strength in seen.items():
                empty = torch.zeros(num_classes, strength.shape[1], dtype=torch.float64, device=strength.device)
                total = sums.setdefault(name, empty)
                total.index_add_(0, labels.to(strength.device), strength)
    return {name: Activity(total.T.cpu().numpy(), samples.numpy()) for name, total in sums.items()}


def specialisation(sums: np.ndarray, samples: np.ndarray | None = None, weak: float = WEAK) -> np.ndarray:
    """S_c of the channels that matter.

    Args:
        sums: A as [channels, classes].
        samples: of each class; where given, A is divided by them first, so that unequal classes weigh the same.
        weak: channels below the point where the ascending contributions reach this share are dropped.

    Example:
        >>> specialisation(np.array([[6.0, 2.0], [1.0, 1.0], [0.0, 0.0]]))
        array([0.75, 0.5 ])
    """
    values = np.asarray(sums, dtype=float)
    if samples is not None:
        values = values[:, samples > 0] / samples[samples > 0]
    strength = values.sum(1)
    if strength.sum() == 0:
        return np.empty(0)
    order = np.argsort(strength, kind="stable")
    dropped = np.searchsorted(np.cumsum(strength[order] / strength.sum()), weak)
    kept = np.sort(order[dropped:])
    return values[kept].max(1) / strength[kept]


def specialisations(found: Mapping[str, Activity]) -> dict[str, np.ndarray]:
    """S per layer."""
    return {name: specialisation(layer.sums, layer.samples) for name, layer in found.items()}


def compare(dense: Mapping[str, np.ndarray], sparse: Mapping[str, np.ndarray]) -> Comparison:
    """Kruskal-Wallis of sparse against dense: all layers pooled, and each with Holm's correction."""
    if list(dense) != list(sparse):
        raise ValueError(f"the networks have different feature layers: {list(dense)} and {list(sparse)}")
    pooled = _test("all", np.concatenate(list(dense.values())), np.concatenate(list(sparse.values())))
    tests = [_test(name, dense[name], sparse[name]) for name in dense]
    corrected = iter(holm([test.p for test in tests if test.p is not None]))
    layers = [
        LayerTest(**{**vars(test), "corrected": next(corrected)}) if test.p is not None else test for test in tests
    ]
    return Comparison(pooled, layers)


def histogram(values: np.ndarray) -> np.ndarray:
    """Counts in 49 bins between 0.09 and 0.51."""
    return np.histogram(values, BINS)[0]


def _test(name: str, dense: np.ndarray, sparse: np.ndarray) -> LayerTest:
    means = [float(values.mean()) if len(values) else float("nan") for values in (dense, sparse)]
    together = np.concatenate([dense, sparse])
    comparable = len(dense) > 0 and len(sparse) > 0 and bool((together != together[0]).any())
    statistic, p = kruskal_wallis(dense, sparse) if comparable else (None, None)
    return LayerTest(name, len(dense), len(sparse), means[0], means[1], statistic, p)


@contextmanager
def _responses(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Summed |output| of the ReLUs that are called right after a 2-d batch norm, by name; later calls of one module get a number.

    Summed at once: the model may write to the tensor afterwards.
    """
    seen: dict[str, Tensor] = {}
    after_norm: list[bool] = [False]
    calls: Counter[str] = Counter()
    # The ReLU behind a wide residual network's blocks is not one of the analysed 2 per block.
    left_out = {"relu"} if isinstance(model, WideResNet) else set()

    def note(name: str, module: nn.Module, output: Tensor) -> None:
        if isinstance(module, nn.ReLU) and after_norm[0] and output.ndim == 4 and name not in left_out:
            calls[name] += 1
            seen[name if name not in seen else f"{name}#{calls[name]}"] = output.abs().sum((2, 3), dtype=torch.float64)
        after_norm[0] = isinstance(module, nn.BatchNorm2d)

    def hook_of(name: str) -> Callable[..., None]:
        return lambda module, inputs, output: note(name, module, output)

    def start(*_: object) -> None:
        calls.clear()

    leaves = [(name, module) for name, module in model.named_modules() if not list(module.children())]
    hooks = [module.register_forward_hook(hook_of(name)) for name, module in leaves]
    hooks.append(model.register_forward_pre_hook(start))
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()
