"""Accuracy and loss on a data set."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regrow.data import Dataset
from regrow.training.processes import Processes
from regrow.uses import evaluation_mode


@dataclass(frozen=True)
class Scores:
    """Shares in [0, 1]; ``top5`` only where there are more than ten classes."""

    loss: float
    accuracy: float
    top5: float | None
    samples: int


@torch.no_grad()
def evaluate(model: nn.Module, dataset: Dataset, batch: int, processes: Processes | None = None) -> Scores:
    """Mean loss and accuracy, each process taking its part of every batch; the model is left as it was."""
    processes = processes or Processes()
    totals = [0.0, 0.0, 0.0, 0.0]
    with evaluation_mode(model):
        for images, labels in dataset.batches(batch_size=batch, rank=processes.rank, world=processes.world):
            if len(labels):
                images, labels = images.to(processes.device), labels.to(processes.device)
                totals = [a + b for a, b in zip(totals, _batch_totals(model(images).float(), labels), strict=True)]
    loss, first, fifth, count = processes.sum(totals)
    top5 = fifth / count if dataset.num_classes > 10 else None
    return Scores(loss / count, first / count, top5, int(count))


def _batch_totals(logits: Tensor, labels: Tensor) -> list[float]:
    loss = nn.functional.cross_entropy(logits, labels, reduction="sum")
    best = logits.topk(min(5, logits.shape[1]), dim=1).indices == labels[:, None]
    return [float(loss), float(best[:, 0].sum()), float(best.sum()), float(len(labels))]
