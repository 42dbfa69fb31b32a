import io
import json
import tarfile
import zipfile

import numpy as np
import pytest
from PIL import Image

from regrow.data.errors import SourceError
from regrow.data.idx import parse_idx
from regrow.data.unpack import cifar10_from_png, mnist_from_csv, tar_members


def write_tar(path, members):
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def test_tar_members_by_last_name(tmp_path):
    archive = write_tar(tmp_path / "a.tgz", {"package/data/one": b"1", "../../etc/two": b"22"})
    assert dict(tar_members(archive)) == {"one": b"1", "two": b"22"}


@pytest.mark.parametrize("cut", [0, 10, 60])
def test_damaged_tar(tmp_path, cut):
    archive = write_tar(tmp_path / "a.tgz", {"one": bytes(np.random.default_rng(0).integers(0, 256, 500, np.uint8))})
    archive.write_bytes(archive.read_bytes()[:cut])
    with pytest.raises(SourceError, match=r"a\.tgz is damaged"):
        list(tar_members(archive))


def csv(images, labels):
    rows = [",".join(map(str, [label, *image.reshape(-1)])) for image, label in zip(images, labels, strict=True)]
    return "\r\n".join([",".join(["label"] + ["1x1"] * 784), *rows, ""]).encode()


def test_mnist_from_csv(tmp_path):
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (5, 28, 28), dtype=np.uint8), np.arange(5, dtype=np.uint8)
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as wheel:
        wheel.writestr("pkg/data/mnist_train.csv", csv(images, labels))
        wheel.writestr("pkg/data/mnist_test.csv", csv(images[:2], labels[:2]))
    files = {name: parse_idx(content) for name, content in mnist_from_csv(tmp_path / "a.whl")}
    assert np.array_equal(files["train-images-idx3-ubyte"], images)
    assert np.array_equal(files["train-labels-idx1-ubyte"], labels)
    assert np.array_equal(files["t10k-images-idx3-ubyte"], images[:2])
    assert np.array_equal(files["t10k-labels-idx1-ubyte"], labels[:2])


def test_wheel_without_tables(tmp_path):
    zipfile.ZipFile(tmp_path / "a.whl", "w").close()
    with pytest.raises(SourceError, match=r"a\.whl does not hold the expected tables"):
        list(mnist_from_csv(tmp_path / "a.whl"))
    (tmp_path / "a.whl").write_bytes(b"no zip")
    with pytest.raises(SourceError, match=r"a\.whl does not hold the expected tables"):
        list(mnist_from_csv(tmp_path / "a.whl"))


def png(pixels):
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "png", compress_level=1)
    return buffer.getvalue()


def test_cifar10_from_png(tmp_path):
    labels = np.arange(60_000, dtype=np.int64) % 10
    pixels = np.zeros((10_000, 1024, 3), np.uint8)
    pixels[7, 33] = (1, 2, 3)
    members = {f"package/data_batch_{n}.png": png(pixels) for n in range(1, 6)}
    members["package/test_batch.png"] = png(pixels)
    members["package/train_lables.json"] = json.dumps(labels[:50_000].tolist()).encode()
    members["package/test_lables.json"] = json.dumps(labels[50_000:].tolist()).encode()
    archive = write_tar(tmp_path / "a.tgz", members)
    files = dict(cifar10_from_png(archive))
    assert list(files) == [f"data_batch_{n}.bin" for n in range(1, 6)] + ["test_batch.bin"]
    rows = np.frombuffer(files["data_batch_2.bin"], np.uint8).reshape(10_000, 3073)
    assert rows[:, 0].tolist() == labels[10_000:20_000].tolist()
    assert [int(rows[7, 1 + plane * 1024 + 33]) for plane in range(3)] == [1, 2, 3]
    assert rows[:, 1:].sum() == 6


def test_package_without_images(tmp_path):
    archive = write_tar(tmp_path / "a.tgz", {"package/train_lables.json": b"[1]", "package/test_lables.json": b"[1]"})
    with pytest.raises(SourceError, match=r"does not hold the expected images .*data_batch_1\.png"):
        list(cifar10_from_png(archive))


def test_bombs_end_in_a_source_error(tmp_path, monkeypatch):
    monkeypatch.setattr("regrow.data.unpack.LARGEST_ARCHIVE", 100_000)
    archive = write_tar(tmp_path / "a.tgz", {"one": bytes(1_000_000)})
    with pytest.raises(SourceError, match="more bytes than any published"):
        list(tar_members(archive))
    with zipfile.ZipFile(tmp_path / "a.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr("mnist_train.csv", bytes(1_000_000))
    with pytest.raises(SourceError, match="unpacks to more than"):
        list(mnist_from_csv(tmp_path / "a.whl"))


@pytest.mark.parametrize("unpack", [tar_members, mnist_from_csv, cifar10_from_png])
def test_whatever_the_damage_it_is_a_source_error(tmp_path, unpack):
    rng = np.random.default_rng(0)
    path = tmp_path / "archive"
    if unpack is mnist_from_csv:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
            wheel.writestr("mnist_train.csv", csv(rng.integers(0, 256, (3, 28, 28)), range(3)))
            wheel.writestr("mnist_test.csv", csv(rng.integers(0, 256, (3, 28, 28)), range(3)))
    else:
        write_tar(path, {"test_lables.json": b"[1, 2]", "one": bytes(rng.integers(0, 256, 2000, np.uint8))})
    whole, refused = path.read_bytes(), 0
    for _ in range(150):
        damaged = bytearray(whole)
        for place in rng.integers(0, len(whole), 8):
            damaged[place] = rng.integers(0, 256)
        path.write_bytes(bytes(damaged[: rng.integers(1, len(whole))] if rng.random() < 0.3 else damaged))
        try:
            list(unpack(path))
        except SourceError:
            refused += 1
    assert refused > 50
