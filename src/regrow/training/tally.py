"""Training loss and right answers since the last row of metrics."""

from __future__ import annotations

import torch
from torch import Tensor

_KEPT = 1 << 20  # logits that wait to be counted: 4 MB


class Tally:
    """Part of a checkpoint, so that rows do not depend on interruptions.

    Answers are counted when asked for, many batches at once: a batch of a small network takes little longer to train on than to count.
    """

    def __init__(self, loss: float = 0.0, hits: int = 0, samples: int = 0) -> None:
        self.loss, self.samples = loss, samples
        self._hits, self._kept = hits, 0
        self._waiting: list[tuple[Tensor, Tensor]] = []

    def add(self, loss: float, logits: Tensor, labels: Tensor) -> None:
        """Count one batch with its mean loss."""
        samples = labels.shape[0]
        self.loss += loss * samples
        self.samples += samples
        self._waiting.append((logits.detach(), labels))
        self._kept += logits.numel()
        if self._kept > _KEPT:
            self._count()

    @property
    def hits(self) -> int:
        """Right answers."""
        self._count()
        return self._hits

    def values(self) -> list[float]:
        """Loss summed over samples, right answers, samples."""
        return [self.loss, float(self.hits), float(self.samples)]

    def _count(self) -> None:
        if self._waiting:
            logits, labels = (torch.cat(parts) for parts in zip(*self._waiting, strict=True))
            self._hits += int((logits.argmax(1) == labels).sum())
            self._waiting, self._kept = [], 0
