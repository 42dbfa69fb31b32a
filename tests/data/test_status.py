from dataclasses import replace

import pytest

from regrow.data import catalogue
from regrow.data.status import status
from regrow.files import checksum


@pytest.fixture(autouse=True)
def _own_places(monkeypatch, tmp_path):
    monkeypatch.setenv("REGROW_CACHE", str(tmp_path))
    monkeypatch.delenv("REGROW_DATA", raising=False)


def test_what_is_cached_is_compared_with_what_was_published(tmp_path):
    record = replace(catalogue.MNIST, files=(("a", checksum(b"one")),))
    assert status(record) == "not fetched"
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "a").write_bytes(b"one")
    assert status(record) == f"verified in {tmp_path / 'mnist'}"
    (tmp_path / "mnist" / "a").write_bytes(b"two")
    assert status(record) == f"damaged in {tmp_path / 'mnist'}: regrow data get mnist fetches it anew"


def test_what_is_not_fetched(monkeypatch):
    assert status(catalogue.MNIST_SAMPLE) == "comes with the package"
    assert status(catalogue.IMAGENET) == "yours to provide, by --data.root"
    monkeypatch.setenv("REGROW_DATA", "/data")
    assert status(catalogue.IMAGENET) == "yours to provide, at /data/imagenet or --data.root"
