"""What of the data sets is on this machine, and whether it is what was published."""

from __future__ import annotations

import os

from regrow.data.cache import is_complete
from regrow.data.catalogue import IMAGENET, MNIST_SAMPLE, DatasetInfo
from regrow.files import cache_root


def status(record: DatasetInfo) -> str:
    """Where a data set is, every cached file compared with its published SHA-256; nothing is fetched."""
    if record is MNIST_SAMPLE:
        return "comes with the package"
    if record is IMAGENET:
        base = os.environ.get("REGROW_DATA")
        return (
            f"yours to provide, at {os.path.join(base, IMAGENET.name)} or --data.root"
            if base
            else "yours to provide, by --data.root"
        )
    folder = cache_root() / record.name
    if is_verified(record):
        return f"verified in {folder}"
    if folder.is_dir():
        return f"damaged in {folder}: regrow data get {record.name} fetches it anew"
    return "not fetched"


def is_verified(record: DatasetInfo) -> bool:
    """Whether the cache has all files of a data set as they were published."""
    return is_complete(cache_root() / record.name, dict(record.files))
