import numpy as np
import pytest
import torch
from torch.nn import functional as F

from regrow.data import DataError
from regrow.data.augment import CropFlip


def by_hand(image, outcome, padding=4):
    """Reflect-pad, crop, flip with torch's own operations."""
    flip = outcome % 2
    top, left = divmod(outcome // 2, 2 * padding + 1)
    height, width = image.shape[1:]
    padded = F.pad(image[None].float(), (padding,) * 4, mode="reflect")[0]
    crop = padded[:, top : top + height, left : left + width]
    return (crop.flip(2) if flip else crop).to(image.dtype)


@pytest.mark.parametrize(("height", "width"), [(32, 32), (6, 9)])
def test_every_outcome_is_a_padded_crop_with_or_without_flip(height, width):
    augment = CropFlip(height, width)
    outcomes = torch.arange(162)
    images = torch.randint(0, 256, (162, 3, height, width), dtype=torch.uint8)
    expected = torch.stack([by_hand(image, int(o)) for image, o in zip(images, outcomes, strict=True)])
    assert torch.equal(augment(images, outcomes), expected)


def test_outcomes_are_even_and_depend_on_seed_and_epoch():
    augment = CropFlip(8, 8)
    outcomes = augment.choose(81_000, seed=1, epoch=0)
    counts = np.bincount(outcomes.numpy(), minlength=162)
    assert len(counts) == 162
    assert np.abs(counts - 500).max() < 5 * np.sqrt(500)
    assert torch.equal(outcomes[:50], augment.choose(50, seed=1, epoch=0))
    assert not torch.equal(outcomes, augment.choose(81_000, seed=1, epoch=1))
    assert not torch.equal(outcomes, augment.choose(81_000, seed=2, epoch=0))


def test_images_too_small_to_reflect():
    with pytest.raises(DataError, match="4x9 are too small to be padded by 4"):
        CropFlip(4, 9)
