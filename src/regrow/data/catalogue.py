"""The data sets that have a name."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from regrow.data.arrays import Normalisation
from regrow.data.errors import DataError

SPLITS = ("train", "val", "test", "train+val")


@dataclass(frozen=True)
class DatasetInfo:
    """What is known of a data set without reading it.

    Attributes:
        name: what `load` and `get` take.
        shape: of one image (channels, height, width).
        class_names: one per label; empty where the files define them.
        description: one line.
        normalisation: published mean and standard deviation per channel.
        augment: whether training images are cropped and flipped at random.
        files: name and SHA-256 of each file in its published, uncompressed form; empty where files are the user's.
    """

    name: str
    shape: tuple[int, int, int]
    class_names: tuple[str, ...]
    description: str
    normalisation: Normalisation
    augment: bool
    files: tuple[tuple[str, str], ...] = ()


_DIGITS = tuple("0123456789")
_MNIST_STATISTICS = Normalisation((0.1307,), (0.3081,))
_CIFAR_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

_MNIST_FILES = (
    ("train-images-idx3-ubyte", "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
    ("train-labels-idx1-ubyte", "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    ("t10k-images-idx3-ubyte", "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
    ("t10k-labels-idx1-ubyte", "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
)
_CIFAR_FILES = (
    ("data_batch_1.bin", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
    ("data_batch_2.bin", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
    ("data_batch_3.bin", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
    ("data_batch_4.bin", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
    ("data_batch_5.bin", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
    ("test_batch.bin", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
)

MNIST = DatasetInfo(
    "mnist",
    (1, 28, 28),
    _DIGITS,
    "handwritten digits, 60,000 + 10,000 images",
    _MNIST_STATISTICS,
    augment=False,
    files=_MNIST_FILES,
)
MNIST_SAMPLE = DatasetInfo(
    "mnist-sample",
    (1, 28, 28),
    _DIGITS,
    "4,000 + 1,000 images of MNIST that come with the package",
    _MNIST_STATISTICS,
    augment=False,
)
CIFAR10 = DatasetInfo(
    "cifar10",
    (3, 32, 32),
    _CIFAR_CLASSES,
    "small photographs of ten classes, 50,000 + 10,000 images",
    Normalisation((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    augment=True,
    files=_CIFAR_FILES,
)
IMAGENET = DatasetInfo(
    "imagenet",
    (3, 224, 224),
    (),
    "photographs of 1,000 classes, from folders train/ and val/ that you provide",
    Normalisation((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    augment=True,
)
_ALL = {record.name: record for record in (MNIST, MNIST_SAMPLE, CIFAR10, IMAGENET)}


def list_datasets() -> tuple[DatasetInfo, ...]:
    """All data sets that have a name."""
    return tuple(_ALL.values())


def find(name: str) -> DatasetInfo | None:
    """The record of a name, or None."""
    return _ALL.get(name)


def unknown(name: str, also: str = "") -> DataError:
    """An error that names the nearest known data set."""
    nearest = get_close_matches(name.lower(), _ALL, n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]!r}? " if nearest else ""
    return DataError(f"unknown data set {name!r}: {hint}Known: {', '.join(_ALL)}{also}.")
