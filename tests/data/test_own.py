import numpy as np
import pytest

from regrow.data import DataError
from regrow.data.own import holds_idx, read_idx_folder, read_npz
from tests.support.idx_files import write_idx


def write_parts(folder, parts=("train", "t10k"), count=20, suffix=""):
    for part in parts:
        write_idx(folder / f"{part}-images-idx3-ubyte{suffix}", np.ones((count, 5, 6), np.uint8))
        write_idx(folder / f"{part}-labels-idx1-ubyte{suffix}", np.arange(count, dtype=np.uint8) % 4)


@pytest.mark.parametrize(
    ("names", "suffix", "expected"),
    [
        (("train", "t10k"), ".gz", ["train", "test"]),
        (("train", "val", "test"), "", ["train", "val", "test"]),
        (("emnist-letters-train", "emnist-letters-test"), ".gz", ["train", "test"]),
        (("train",), "", ["train"]),
    ],
)
def test_idx_folder(tmp_path, names, suffix, expected):
    write_parts(tmp_path, names, suffix=suffix)
    parts = read_idx_folder(tmp_path)
    assert list(parts) == expected
    assert parts["train"].images.shape == (20, 1, 5, 6)


def test_holds_idx(tmp_path):
    assert not holds_idx(tmp_path)
    write_parts(tmp_path)
    assert holds_idx(tmp_path)


def test_labels_missing(tmp_path):
    write_parts(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DataError, match=r"has .*t10k-images-idx3-ubyte but not the labels to it"):
        read_idx_folder(tmp_path)


def test_two_candidates(tmp_path):
    write_parts(tmp_path)
    write_parts(tmp_path, suffix=".gz")
    with pytest.raises(DataError, match=r"more than one file of train-images: train-images-idx3-ubyte, .*gz"):
        read_idx_folder(tmp_path)


def test_count_mismatch_names_both_files(tmp_path):
    write_parts(tmp_path)
    write_idx(tmp_path / "train-labels-idx1-ubyte", np.zeros(19, np.uint8))
    with pytest.raises(DataError, match="train-images-idx3-ubyte and train-labels-idx1-ubyte: 20 images but 19 labels"):
        read_idx_folder(tmp_path)


def test_test_label_out_of_range(tmp_path):
    write_parts(tmp_path)
    write_idx(tmp_path / "t10k-labels-idx1-ubyte", np.array([0] * 19 + [9], np.uint8))
    with pytest.raises(DataError, match="label 9 at index 19 of test is out of range: training labels end at 3"):
        read_idx_folder(tmp_path)


def test_parts_of_different_form(tmp_path):
    write_parts(tmp_path)
    write_idx(tmp_path / "t10k-images-idx3-ubyte", np.ones((20, 5, 5), np.uint8))
    with pytest.raises(DataError, match=r"test images are uint8 of shape \(1, 5, 5\), training has uint8 \(1, 5, 6\)"):
        read_idx_folder(tmp_path)


X, Y = np.ones((20, 5, 6, 3), np.uint8), np.arange(20) % 4


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ({"x_train": X, "y_train": Y, "x_test": X, "y_test": Y}, ["train", "test"]),
        ({"train_images": X, "train_labels": Y[:, None], "val_images": X, "val_labels": Y}, ["train", "val"]),
        ({"images": X, "labels": Y}, ["train"]),
    ],
)
def test_npz(tmp_path, arrays, expected):
    np.savez_compressed(tmp_path / "a.npz", **arrays)
    parts = read_npz(tmp_path / "a.npz")
    assert list(parts) == expected
    assert parts["train"].images.shape == (20, 3, 5, 6)
    assert parts["train"].labels.tolist() == Y.tolist()


def test_npz_without_training_arrays(tmp_path):
    np.savez(tmp_path / "a.npz", foo=X)
    with pytest.raises(DataError, match=r"no training arrays; expected x_train, y_train or .*found foo"):
        read_npz(tmp_path / "a.npz")


def test_npz_with_pickles_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", x_train=np.array([{}], dtype=object), y_train=Y)
    with pytest.raises(DataError, match=r"a\.npz: cannot be read as \.npz .*allow_pickle"):
        read_npz(tmp_path / "a.npz")


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 broken"])
def test_damaged_npz(tmp_path, content):
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"a\.npz: cannot be read as \.npz"):
        read_npz(tmp_path / "a.npz")
