import zipfile

import numpy as np
import pytest

from regrow.data import DataError
from regrow.data.own import holds_idx, read_idx_folder, read_npz
from regrow.errors import RegrowWarning
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
    with pytest.raises(DataError, match=r"a\.npz: holds Python objects, which are never read"):
        read_npz(tmp_path / "a.npz")


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 broken"])
def test_a_file_that_is_no_archive(tmp_path, content):
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"a\.npz: is not an \.npz archive"):
        read_npz(tmp_path / "a.npz")


def test_damaged_npz(tmp_path):
    np.savez(tmp_path / "a.npz", x_train=X, y_train=Y)
    content = bytearray((tmp_path / "a.npz").read_bytes())
    content[200:240] = bytes(40)
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"a\.npz: cannot be read as \.npz"):
        read_npz(tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (
            {"x_tst": X, "y_tst": Y},
            r"array 'x_tst' would not be used: did you mean 'x_test'\? Found x_train, y_train, x_tst",
        ),
        ({"x_test": X}, "has x_test but not y_test; found x_train, y_train, x_test"),
        ({"y_val": Y}, "has y_val but not x_val"),
    ],
)
def test_arrays_that_would_be_left_out(tmp_path, extra, message):
    np.savez(tmp_path / "a.npz", x_train=X, y_train=Y, **extra)
    with pytest.raises(DataError, match=message):
        read_npz(tmp_path / "a.npz")


def test_arrays_of_the_users_own_are_left_alone(tmp_path):
    np.savez(tmp_path / "a.npz", x_train=X, y_train=Y, class_names=np.arange(4), writer=np.zeros(3))
    assert list(read_npz(tmp_path / "a.npz")) == ["train"]


def test_labels_count_from_zero(tmp_path):
    np.savez(tmp_path / "a.npz", x_train=X, y_train=Y % 3 + 1)
    with pytest.raises(DataError, match="training labels run from 1 to 3; they must count from 0: subtract 1"):
        read_npz(tmp_path / "a.npz")


def test_classes_without_images_are_warned_of(tmp_path):
    np.savez(tmp_path / "a.npz", x_train=X, y_train=Y * 2)
    with pytest.warns(RegrowWarning, match=r"4 different training labels from 0 to 6: 3 classes .* \(first: 1, 3, 5\)"):
        assert list(read_npz(tmp_path / "a.npz")) == ["train"]


def npz_with_header(path, name, header):
    """An .npz whose array `name` has a header of its own, and no values."""
    with zipfile.ZipFile(path, "a") as archive:
        text = header.encode().ljust(117) + b"\n"
        archive.writestr(f"{name}.npy", b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(64))


HUGE = "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000, 1000, 1000), }"


def test_an_array_that_is_not_used_is_not_read(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, x_train=np.zeros((4, 3, 3), np.uint8), y_train=np.arange(4) % 2)
    npz_with_header(path, "mine", HUGE)
    assert len(read_npz(path)["train"]) == 4


def test_headers_that_claim_more_than_there_is_are_refused(tmp_path):
    for shape in ("(1000000, 1000, 1000)", "(100, 100, 100)", "(-1, 2, 2)"):
        path = tmp_path / "a.npz"
        path.unlink(missing_ok=True)
        np.savez(path, y_train=np.arange(4))
        npz_with_header(path, "x_train", HUGE.replace("(1000000, 1000, 1000)", shape))
        with pytest.raises(DataError, match=r"a\.npz"):
            read_npz(path)


@pytest.mark.parametrize("label", [10**6, 10**9, 2**62])
def test_labels_have_a_bound(tmp_path, label):
    np.savez(tmp_path / "a.npz", x_train=np.zeros((3, 2, 2), np.uint8), y_train=np.array([0, label, 1]))
    with pytest.raises(DataError, match=rf"label {label} at index 1 asks for more than 1,000,000 classes"):
        read_npz(tmp_path / "a.npz")


def test_damage_of_a_compressed_archive_is_named(tmp_path):
    path = tmp_path / "a.npz"
    np.savez_compressed(
        path, x_train=np.random.default_rng(0).integers(0, 9, (40, 9, 9), np.uint8), y_train=np.arange(40) % 3
    )
    whole = path.read_bytes()
    refused = 0
    for place in range(30, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            read_npz(path)
        except DataError:
            refused += 1
    assert refused > 20


@pytest.mark.parametrize("names", [("X", "y"), ("x", "y"), ("X_train", "y_train")])
def test_names_of_the_data_world_and_rows_of_a_table(tmp_path, names):
    np.savez(tmp_path / "a.npz", **{names[0]: np.eye(12, 7, dtype=np.float32), names[1]: np.arange(12) % 3})
    train = read_npz(tmp_path / "a.npz")["train"]
    assert train.images.shape == (12, 1, 1, 7)
    assert train.images[3, 0, 0, 3] == 1
    np.savez(
        tmp_path / "b.npz", **{names[0]: np.ones((4, 2), np.float32)}, x_train=np.ones((4, 2)), y_train=np.arange(4)
    )
    if names[0] != "X_train":
        with pytest.raises(DataError, match=f"has {names[0]} but not y"):
            read_npz(tmp_path / "b.npz")
