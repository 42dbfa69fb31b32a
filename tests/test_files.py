"""Files that are whole or absent."""

import errno
import os
import subprocess
import sys
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


def test_a_link_in_place_of_the_temporary_file_is_not_followed(tmp_path):
    treasure = tmp_path / "treasure"
    treasure.write_text("mine")
    (tmp_path / ".a.txt.tmp").symlink_to(treasure)
    files.write_atomically(tmp_path / "a.txt", b"new")
    assert treasure.read_text() == "mine"
    assert (tmp_path / "a.txt").read_bytes() == b"new"
    assert sorted(os.listdir(tmp_path)) == ["a.txt", "treasure"]


@pytest.mark.parametrize("write", [files.write_through, files.append])
def test_links_are_never_written_through(write, tmp_path):
    treasure = tmp_path / "treasure"
    treasure.write_text("mine")
    (tmp_path / "link").symlink_to(treasure)
    with pytest.raises(OSError, match="link"):
        write(tmp_path / "link", b"new")
    assert treasure.read_text() == "mine"


LIMITED = """
import resource, sys
from pathlib import Path
from regrow import files
path = Path(sys.argv[1])
path.touch()
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
for write in (files.append, lambda path, content: files.write_through(path.with_name("new"), content)):
    try:
        write(path, bytes(5000))
    except OSError as error:
        print(error.errno, error.filename)
"""


def test_limits_name_the_file(tmp_path):
    command = [sys.executable, "-c", LIMITED, str(tmp_path / "old")]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert lines == [f"{errno.EFBIG} {tmp_path / 'old'}", f"{errno.EFBIG} {tmp_path / 'new'}"]


def test_append_needs_a_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        files.append(tmp_path / "gone", b"x")
    assert not list(tmp_path.iterdir())


def test_removing_a_link_keeps_what_it_points_to(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    for name in ("link", "gone"):
        files.remove(tmp_path / name)
    assert os.listdir(tmp_path) == ["folder"]
    assert (tmp_path / "folder" / "file").exists()
    files.remove(tmp_path / "folder")
    assert not list(tmp_path.iterdir())
