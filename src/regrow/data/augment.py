"""Random crop and horizontal flip of a whole batch in one gather."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from regrow.data import draws
from regrow.data.errors import DataError


class CropFlip:
    """Pad by reflection, crop back to the size at a random place, flip horizontally in half of the cases.

    There are only 2 * (2 * padding + 1)^2 outcomes (162 for a padding of 4): a table holds, for each of them, the
    source pixel of every target pixel.
    """

    def __init__(self, height: int, width: int, padding: int = 4) -> None:
        if min(height, width) <= padding:
            raise DataError(f"images of {height}x{width} are too small to be padded by {padding} through reflection")
        shifts = 2 * padding + 1
        rows = _reflected_windows(height, padding)
        columns = _reflected_windows(width, padding)
        columns = np.stack([columns, columns[:, ::-1]])
        table = rows[:, None, None, :, None] * width + columns.transpose(1, 0, 2)[None, :, :, None, :]
        self._table = torch.from_numpy(table.reshape(shifts * shifts * 2, height * width))

    def choose(self, samples: int, seed: int, epoch: int) -> Tensor:
        """The outcome for every sample of an epoch."""
        sample = np.arange(samples)
        return torch.from_numpy(draws.integers(len(self._table), seed, draws.CROP_FLIP, epoch, sample))

    def __call__(self, images: Tensor, outcome: Tensor) -> Tensor:
        """Apply `outcome[i]` to `images[i]`.

        Args:
            images: [batch, channels, height, width], any type.
            outcome: [batch], entries of `choose`.
        """
        source = self._table.index_select(0, outcome)[:, None, :].expand(-1, images.shape[1], -1)
        return images.flatten(2).gather(2, source).view_as(images)


def _reflected_windows(size: int, padding: int) -> np.ndarray:
    """[2 * padding + 1, size]: for each shift, the source index of each target index.

    >>> _reflected_windows(3, 1).tolist()
    [[1, 0, 1], [0, 1, 2], [1, 2, 1]]
    """
    padded = np.pad(np.arange(size), padding, mode="reflect")
    return np.stack([padded[shift : shift + size] for shift in range(2 * padding + 1)])
