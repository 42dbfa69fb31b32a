import os
import time

import pytest

from regrow.data import cache
from regrow.data.cache import is_complete, partial_folder, publish
from regrow.files import checksum, write_through

EXPECTED = {"a": checksum(b"one"), "b": checksum(b"two")}


def fill(folder):
    write_through(folder / "a", b"one")
    write_through(folder / "b", b"two")


def test_is_complete(tmp_path):
    assert not is_complete(tmp_path, EXPECTED)
    fill(tmp_path)
    assert is_complete(tmp_path, EXPECTED)
    (tmp_path / "b").write_bytes(b"twO")
    assert not is_complete(tmp_path, EXPECTED)


def test_publish_and_leave_nothing_else(tmp_path):
    with partial_folder(tmp_path) as filled:
        fill(filled)
        publish(filled, tmp_path / "set", EXPECTED)
    assert is_complete(tmp_path / "set", EXPECTED)
    assert os.listdir(tmp_path) == ["set"]
    assert (tmp_path / "set").stat().st_mode & 0o777 == 0o777 & ~_umask()


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_second_publisher_is_content_with_the_first(tmp_path):
    fill_time = []
    for _ in range(2):
        with partial_folder(tmp_path) as filled:
            fill(filled)
            publish(filled, tmp_path / "set", EXPECTED)
            fill_time.append((tmp_path / "set").stat().st_ino)
    assert fill_time[0] == fill_time[1]
    assert os.listdir(tmp_path) == ["set"]


def test_damaged_cache_is_replaced(tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a").write_bytes(b"broken")
    with partial_folder(tmp_path) as filled:
        fill(filled)
        publish(filled, tmp_path / "set", EXPECTED)
    assert is_complete(tmp_path / "set", EXPECTED)
    assert os.listdir(tmp_path) == ["set"]


def test_failure_leaves_nothing(tmp_path):
    def interrupted():
        with partial_folder(tmp_path) as filled:
            write_through(filled / "a", b"one")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert os.listdir(tmp_path) == []


def test_leftovers_of_killed_processes_are_swept_when_old(tmp_path):
    for name, age in ((".partial-old", 2 * 24 * 3600), (".partial-new", 0)):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    with partial_folder(tmp_path):
        pass
    assert os.listdir(tmp_path) == [".partial-new"]
    assert cache._STALE_SECONDS == 24 * 3600
