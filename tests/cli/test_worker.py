"""The process of one run: it goes with its parent and shares its folder with nobody."""

import fcntl
import os
import signal
import sys
from types import SimpleNamespace

import pytest

from regrow.cli import worker


def test_linux_is_asked_for_sigterm_when_the_parent_dies(monkeypatch):
    asked = []
    libc = SimpleNamespace(prctl=lambda *arguments: asked.append(arguments) or 0)
    monkeypatch.setattr(worker.ctypes, "CDLL", lambda *_, **__: libc)
    monkeypatch.setattr(sys, "platform", "linux")
    assert worker.stop_with_parent()
    assert asked == [(1, signal.SIGTERM)]
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not worker.stop_with_parent()


def test_the_folder_is_held_until_the_end(tmp_path):
    lock = worker.wait_for(tmp_path)
    other = os.open(tmp_path / ".lock", os.O_RDWR)
    with pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(lock)
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(other)


def test_it_trains_the_job_in_its_folder(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(worker, "stop_with_parent", lambda: True)
    monkeypatch.setattr("regrow.cli.main.main", lambda arguments: seen.append(arguments) or 7)
    assert worker.main(tmp_path) == 7
    assert seen == [["train", str(tmp_path / "job.toml"), "--out", str(tmp_path)]]
