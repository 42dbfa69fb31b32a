"""Files that are whole or absent."""

import os
from pathlib import Path

import pytest

from regrow import files


def test_write_atomically_replaces(tmp_path):
    path = tmp_path / "a.txt"
    files.write_atomically(path, b"one")
    files.write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    files.write_atomically(path, b"old")

    def fail(descriptor):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(files.os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output"):
        files.write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_folder_in_the_way_is_named_and_nothing_is_left(tmp_path):
    (tmp_path / "a.txt").mkdir()
    with pytest.raises(OSError, match=r"cannot be written \(Is a directory\): '.*/a\.txt'$"):
        files.write_atomically(tmp_path / "a.txt", b"new")
    assert os.listdir(tmp_path) == ["a.txt"]


def test_checksum_is_sha256():
    assert files.checksum(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_what_a_process_holds_it_need_not_wait_for(tmp_path):
    with files.held(tmp_path), files.held(tmp_path):
        pass
    with files.held(tmp_path), pytest.raises(BlockingIOError), files.held(tmp_path, wait=False):
        pass


def test_a_refusal_leaves_the_holder_what_it_holds(tmp_path):
    with files.held(tmp_path):
        with pytest.raises(BlockingIOError), files.held(tmp_path, wait=False):
            pass
        assert tmp_path.resolve() in files._holding, "else the next to wait would wait for itself"
    assert tmp_path.resolve() not in files._holding


def test_cache_root(monkeypatch, tmp_path):
    monkeypatch.setenv("REGROW_CACHE", str(tmp_path))
    assert files.cache_root() == tmp_path
    monkeypatch.delenv("REGROW_CACHE")
    assert files.cache_root() == Path.home() / ".cache" / "regrow"
