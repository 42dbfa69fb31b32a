import os
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from regrow import data
from regrow.data import DataError
from regrow.data.folder import ImageFolder

IMAGENETTE = Path(__file__).parents[3] / "shared" / "data" / "imagenette-mini"


def fill(root, parts, classes=("ant", "bee", "cat"), count=11):
    """Images of one colour each: class in red, number in green."""
    for part in parts:
        for label, name in enumerate(classes):
            folder = root / part / name
            folder.mkdir(parents=True)
            for number in range(count):
                picture = np.full((40, 50, 3), (80 * label, 10 * number, 7), np.uint8)
                Image.fromarray(picture).save(folder / f"{number:02}.png")
    return root


def plain(batch):
    """Undo the normalisation."""
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    return (batch * std + mean) * 255


def test_batches_carry_the_right_pixels_and_labels(tmp_path):
    fill(tmp_path, ["train", "val"])
    train = data.load(tmp_path, "train", image_size=32)
    assert (len(train), train.num_classes, train.class_names, train.shape) == (
        33,
        3,
        ("ant", "bee", "cat"),
        (3, 32, 32),
    )
    seen = []
    for x, y in train.batches(epoch=1, batch_size=8, seed=3):
        colours = plain(x).mean((2, 3))
        torch.testing.assert_close(colours[:, 0], 80.0 * y, atol=0.01, rtol=0)
        torch.testing.assert_close(colours[:, 2], torch.full((len(y),), 7.0), atol=0.01, rtol=0)
        assert x.is_contiguous(memory_format=torch.channels_last)
        seen += [(int(label), round(float(c))) for label, c in zip(y, colours[:, 1], strict=True)]
    assert sorted(seen) == [(label, 10 * number) for label in range(3) for number in range(11)]


def test_evaluation_is_in_file_order(tmp_path):
    fill(tmp_path, ["train", "val"])
    labels = torch.cat([y for _, y in data.load(tmp_path, "val", image_size=32).batches(batch_size=10)])
    assert labels.tolist() == [0] * 11 + [1] * 11 + [2] * 11


@pytest.mark.parametrize("world", [1, 2])
def test_any_position_and_any_rank_gives_the_same_images(tmp_path, world):
    fill(tmp_path, ["train", "val"])
    for index, path in enumerate(sorted(tmp_path.rglob("*.png"))):
        Image.fromarray(np.random.default_rng(index).integers(0, 256, (40, 50, 3), dtype=np.uint8)).save(path)
    train = ImageFolder(tmp_path, image_size=32, workers=3)
    whole = list(train.batches(epoch=2, batch_size=8, seed=9))
    ranks = [list(train.batches(2, 6, 9, start_step=2, rank=rank, world=world)) for rank in range(world)]
    six = list(train.batches(2, 6, 9))
    for step, (x, y) in enumerate(six[2:]):
        assert torch.equal(torch.cat([share[step][0] for share in ranks]), x)
        assert torch.equal(torch.cat([share[step][1] for share in ranks]), y)
    assert torch.equal(torch.cat([x for x, _ in whole]), torch.cat([x for x, _ in six]))
    other = next(train.batches(epoch=3, batch_size=8, seed=9))[0]
    assert not torch.equal(other, whole[0][0])


def test_splits_with_and_without_a_val_folder(tmp_path):
    fill(tmp_path / "two", ["train", "val"])
    fill(tmp_path / "one", ["train"], count=20)
    sizes = {split: len(data.load(tmp_path / "two", split)) for split in ("train", "val", "train+val")}
    assert sizes == {"train": 33, "val": 33, "train+val": 66}
    train, held = (data.load(tmp_path / "one", split, image_size=32) for split in ("train", "val"))
    assert (len(train), len(held), len(data.load(tmp_path / "one", "train+val"))) == (54, 6, 60)
    x, y = next(held.batches(batch_size=6))
    assert y.tolist() == [0, 0, 1, 1, 2, 2]
    assert plain(x).mean((2, 3))[:, 1].round().tolist() == [180, 190] * 3
    for name in ("one", "two"):
        with pytest.raises(
            DataError, match=r"has no 'test' folder; add one, or test on the validation .* --test-split val"
        ):
            data.load(tmp_path / name, "test")


def test_augmentation_can_be_switched(tmp_path):
    fill(tmp_path, ["train", "val"])
    assert data.load(tmp_path, "train").augment
    assert not data.load(tmp_path, "val").augment
    assert not data.load(tmp_path, "train", augment=False).augment


def test_missing_or_empty_folders(tmp_path):
    with pytest.raises(DataError, match="train: no such folder"):
        ImageFolder(tmp_path)
    (tmp_path / "train").mkdir()
    with pytest.raises(DataError, match="train: has no class folders"):
        ImageFolder(tmp_path)
    fill(tmp_path, ["train", "val"])
    (tmp_path / "train" / "dog").mkdir()
    (tmp_path / "train" / "dog" / "notes.txt").write_text("no image")
    with pytest.raises(DataError, match=r"train/dog: class folder without images \(.bmp, .jpeg"):
        ImageFolder(tmp_path)


def test_class_that_training_does_not_know(tmp_path):
    fill(tmp_path, ["train"])
    fill(tmp_path, ["val"], classes=("ant", "eel"))
    with pytest.raises(DataError, match="val/eel: this class does not occur in the training folder"):
        ImageFolder(tmp_path, "val")


def test_damaged_image_is_named_and_threads_end(tmp_path):
    fill(tmp_path, ["train", "val"])
    (tmp_path / "val" / "bee" / "05.png").write_bytes(b"not an image")
    batches = data.load(tmp_path, "val", image_size=32).batches(batch_size=5)
    for _ in range(3):
        next(batches)
    with pytest.raises(DataError, match=r"val/bee/05\.png: cannot be read as an image"):
        next(batches)
    assert not [t for t in threading.enumerate() if t.name.startswith("regrow-decode")]


def test_an_epoch_may_be_left_early(tmp_path):
    fill(tmp_path, ["train", "val"])
    batches = data.load(tmp_path, image_size=32).batches(batch_size=5)
    next(batches)
    batches.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("regrow-decode")]


@pytest.mark.skipif(not IMAGENETTE.is_dir(), reason="imagenette-mini is not at hand")
def test_real_photographs():
    train, val = (data.load(IMAGENETTE, split) for split in ("train", "val"))
    assert (len(train), len(val), train.num_classes) == (600, 200, 10)
    x, y = next(train.batches(batch_size=16, seed=1))
    assert x.shape == (16, 3, 224, 224)
    assert len(y.unique()) > 3
    statistics = torch.stack([x.mean((2, 3)) for x, _ in val.batches(batch_size=50)])
    assert statistics.mean((0, 1)).abs().max() < 0.35


def test_too_few_images_to_hold_any_out_are_refused(tmp_path):
    fill(tmp_path, ["train"], count=1)
    with pytest.raises(DataError, match="too few images to hold any out for validation; add a 'val' folder"):
        data.load(tmp_path, "val", image_size=32)


def test_the_most_frequent_class(tmp_path):
    fill(tmp_path, ["train", "val"], count=4)
    for extra in range(4):
        Image.new("RGB", (40, 40)).save(tmp_path / "val" / "bee" / f"more{extra}.png")
    assert data.load(tmp_path, "val", image_size=32).majority == 0.5


@pytest.mark.parametrize(
    "make", [os.mkfifo, os.mkdir, lambda path: os.symlink(path, path)], ids=["pipe", "folder", "link"]
)
def test_what_is_no_regular_file_is_refused(tmp_path, make):
    folder = tmp_path / "train" / "cat"
    folder.mkdir(parents=True)
    make(folder / "x.png")
    with pytest.raises(DataError, match=r"x\.png: is no regular file"):
        ImageFolder(tmp_path)


def test_class_folders_without_parts_are_training_data(tmp_path):
    fill(tmp_path, ["."])
    train, held = (data.load(tmp_path, split, image_size=32) for split in ("train", "val"))
    assert (len(train), len(held), train.class_names) == (30, 3, ("ant", "bee", "cat"))
    with pytest.raises(DataError, match=r"has no 'test' folder.*--test-split val"):
        data.load(tmp_path, "test", image_size=32)


@pytest.mark.parametrize("parts", [["train", "val"], [""]])
def test_tiff_is_refused_rather_than_left_out(tmp_path, parts):
    fill(tmp_path, parts)
    for number in range(2):
        Image.fromarray(np.ones((4, 4), np.float32)).save(tmp_path / parts[0] / "bee" / f"float{number}.tif")
    with pytest.raises(
        DataError, match=r"bee/float0\.tif: TIFF is not read, and 2 such files are in this class; save them as PNG"
    ):
        data.load(tmp_path, "train")
