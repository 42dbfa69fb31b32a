import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from regrow import data
from regrow.data import DataError, loading
from tests.support.idx_files import write_idx


def test_sample_has_the_papers_splits():
    sizes = {split: len(data.load("mnist-sample", split)) for split in ("train", "val", "test", "train+val")}
    assert sizes == {"train": 3600, "val": 400, "test": 1000, "train+val": 4000}


def test_sample_is_real_mnist():
    train = data.load("mnist-sample", "train+val")
    x, y = next(train.batches(batch_size=4000))
    assert x.mean().abs() < 0.02
    assert x.std() == pytest.approx(1, abs=0.02)
    counts = torch.bincount(y, minlength=10)
    assert counts.min() > 300
    assert counts.sum() == 4000
    # Grey levels of published MNIST: black is 0, so the smallest value is -mean / std.
    assert x.min().item() == pytest.approx(-0.1307 / 0.3081, abs=1e-5)
    assert x.max().item() == pytest.approx((1 - 0.1307) / 0.3081, abs=1e-5)


def test_validation_is_the_tail_of_the_training_set():
    both = next(data.load("mnist-sample", "train+val").batches(batch_size=4000, seed=1))
    val = next(data.load("mnist-sample", "val").batches(batch_size=400))
    order = np.argsort(_order(4000, seed=1))
    assert torch.equal(both[1][order[3600:]], val[1])
    assert torch.equal(both[0][order[3600:]], val[0])


def _order(samples, seed):
    from regrow.data.epoch import Epoch

    return Epoch(samples, samples, seed=seed).order()


def test_training_is_shuffled_and_evaluation_is_not():
    train, test = data.load("mnist-sample"), data.load("mnist-sample", "test")
    assert train.shuffle
    assert not test.shuffle
    first = next(test.batches(epoch=0, batch_size=50))[1]
    assert torch.equal(first, next(test.batches(epoch=1, batch_size=50, seed=3))[1])


def test_importing_data_needs_no_torch():
    code = "import sys; from regrow import data; data.list_datasets(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.fixture
def tiny_cifar(tmp_path, monkeypatch):
    """Six files in CIFAR-10's binary form with 20 images each."""
    rng = np.random.default_rng(0)
    for name in [f"data_batch_{n}.bin" for n in range(1, 6)] + ["test_batch.bin"]:
        rows = rng.integers(0, 256, (20, 3073), dtype=np.uint8)
        rows[:, 0] = np.arange(20) % 10
        rows.tofile(tmp_path / name)
    monkeypatch.setattr(loading, "get", lambda name, root: tmp_path)
    return tmp_path


def test_cifar10(tiny_cifar):
    train, val, test = (data.load("cifar10", split) for split in ("train", "val", "test"))
    assert (len(train), len(val), len(test), train.shape) == (90, 10, 20, (3, 32, 32))
    assert train.class_names[3] == "cat"
    pixels = np.fromfile(tiny_cifar / "test_batch.bin", np.uint8).reshape(20, 3073)[:, 1:].reshape(20, 3, 32, 32) / 255
    mean, std = (np.array(v)[:, None, None] for v in ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)))
    x, y = next(test.batches(batch_size=20))
    torch.testing.assert_close(x, torch.from_numpy((pixels - mean) / std).float(), atol=2e-6, rtol=1e-5)
    assert y.tolist() == [i % 10 for i in range(20)]


@pytest.mark.usefixtures("tiny_cifar")
def test_only_training_images_of_cifar10_are_augmented():
    def moves(dataset):
        """Whether two epochs show a sample differently."""
        first, second = (dict(zip(*_sorted(next(dataset.batches(epoch, 90, 0))), strict=True)) for epoch in (0, 1))
        return any(key not in second for key in first)

    def _sorted(batch):
        return [float(v) for v in batch[0].sum((1, 2, 3))], batch[1].tolist()

    assert moves(data.load("cifar10", "train"))
    assert not moves(data.load("cifar10", "train", augment=False))
    assert not moves(data.load("cifar10", "val"))


def write_own(folder, labels, part="train"):
    write_idx(folder / f"{part}-images-idx3-ubyte", np.arange(len(labels) * 64).reshape(-1, 8, 8).astype(np.uint8))
    write_idx(folder / f"{part}-labels-idx1-ubyte", np.array(labels, np.uint8))


def test_own_idx_folder_sorted_by_class(tmp_path):
    write_own(tmp_path, [0] * 30 + [1] * 20 + [2] * 10)
    train, val = data.load(tmp_path), data.load(str(tmp_path), "val")
    assert (len(train), len(val), train.num_classes, train.shape) == (54, 6, 3, (1, 8, 8))
    assert next(val.batches(batch_size=6))[1].tolist() == [0, 0, 0, 1, 1, 2]
    x = torch.cat([x for x, _ in train.batches(batch_size=10)])
    assert x.mean().abs() < 1e-4
    assert x.std() == pytest.approx(1, abs=1e-3)
    with pytest.raises(
        DataError, match="has no test part; add one, or test on the validation part with --test-split val"
    ):
        data.load(tmp_path, "test")


def test_own_validation_part_is_used(tmp_path):
    write_own(tmp_path, [0, 1] * 20)
    write_own(tmp_path, [1, 0, 1], part="val")
    sizes = [len(data.load(tmp_path, split)) for split in ("train", "val", "train+val")]
    assert sizes == [40, 3, 43]


def test_own_npz_with_augmentation(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (40, 12, 10, 3), dtype=np.uint8)
    np.savez(tmp_path / "mine.npz", x_train=images, y_train=np.arange(40) % 4, x_test=images, y_test=np.arange(40) % 4)
    train = data.load(tmp_path / "mine.npz", augment=True)
    assert repr(train) == "ArrayDataset(mine train: 36 images 3x12x10, 4 classes)"
    epochs = [torch.cat([x for x, _ in train.batches(epoch, 36)]).sort(0).values for epoch in (0, 1)]
    assert not torch.equal(*epochs)
    assert len(data.load(tmp_path / "mine.npz", "test")) == 40


def test_too_few_samples_to_hold_out(tmp_path):
    write_own(tmp_path, [0, 1, 2])
    with pytest.raises(DataError, match="too few samples to hold any out"):
        data.load(tmp_path, "val")


def test_unknown_names_paths_and_splits(tmp_path):
    with pytest.raises(DataError, match=r"unknown data set 'mnits': did you mean 'mnist'\? .*no such file or folder"):
        data.load("mnits")
    with pytest.raises(DataError, match="unknown split 'valid': choose one of train, val, test, train"):
        data.load("mnist-sample", "valid")
    (tmp_path / "notes.txt").write_text("")
    for path in (tmp_path, tmp_path / "notes.txt"):
        with pytest.raises(DataError, match="not a known form of data; expected a folder with train-images"):
            data.load(path)


def test_imagenet_needs_a_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("REGROW_DATA", raising=False)
    with pytest.raises(DataError, match="imagenet cannot be fetched"):
        data.load("imagenet")
    monkeypatch.setenv("REGROW_DATA", str(tmp_path))
    with pytest.raises(DataError, match=f"imagenet{os.sep}train: no such folder"):
        data.load("imagenet")
    with pytest.raises(DataError, match=r"elsewhere.train: no such folder"):
        data.load("imagenet", root=tmp_path / "elsewhere")


def test_list_datasets():
    assert [record.name for record in data.list_datasets()] == ["mnist", "mnist-sample", "cifar10", "imagenet"]


def test_form_is_that_of_the_loaded_data(tmp_path, monkeypatch):
    monkeypatch.delenv("REGROW_DATA", raising=False)
    write_own(tmp_path, [0] * 30 + [1] * 20 + [2] * 10)
    for name in ("mnist-sample", tmp_path):
        loaded = data.load(name)
        assert data.form_of(name) == data.Form(loaded.shape, loaded.num_classes)
    assert data.form_of("imagenet", image_size=64) == data.Form((3, 64, 64), 1000)
    monkeypatch.setenv("REGROW_DATA", str(tmp_path))
    assert data.form_of("imagenet").num_classes == 1000, "not placed there yet"
    (tmp_path / "imagenet" / "train" / "ant").mkdir(parents=True)
    assert data.form_of("imagenet").num_classes == 1


def test_normalisation_of_ones_own():
    own = data.Normalisation((0.5,), (0.25,))
    (mine, _), (published, _) = (
        next(data.load("mnist-sample", "test", normalisation=n).batches(batch_size=10)) for n in (own, None)
    )
    torch.testing.assert_close(mine * 0.25 + 0.5, published * 0.3081 + 0.1307, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("mean", "std"), [((0.5,), ()), ((0.5,), (0.0,)), ((), (1.0,))])
def test_normalisation_needs_both_and_a_spread(mean, std):
    with pytest.raises(DataError, match="a mean and a positive std for every channel"):
        data.Normalisation(mean, std)


def test_normalisation_of_other_channels_is_refused():
    with pytest.raises(DataError, match="mnist-sample has 1 channels, but mean and std are given for 3"):
        data.load("mnist-sample", normalisation=data.Normalisation((0.5,) * 3, (0.2,) * 3))
