"""What a run tells of its machine, and the allocator."""

import json
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import torch

import regrow
from regrow import allocator, environment
from regrow.environment import code, cores, describe, gpus, openmp_run_times, processor_name


def test_describe_is_json_and_names_versions():
    found = describe()
    assert json.loads(json.dumps(found)) == found
    assert found["torch"] == torch.__version__
    assert found["threads"] == torch.get_num_threads()
    assert processor_name()


def test_the_code_has_a_hash_that_changes_with_any_file(tmp_path, monkeypatch):
    first = code()
    assert first == code() == describe()["code"]
    copied = tmp_path / "regrow"
    shutil.copytree(Path(regrow.__file__).parent, copied, ignore=shutil.ignore_patterns("csrc", "__pycache__"))
    monkeypatch.setattr(regrow, "__file__", str(copied / "__init__.py"))
    assert code() == first
    (copied / "window.py").write_text("pass")
    assert code() != first


def test_cores_are_those_that_this_process_may_use(monkeypatch):
    assert 1 <= cores() <= os.cpu_count()
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 5}, raising=False)
    assert cores() == 2
    monkeypatch.delattr(os, "sched_getaffinity")
    assert cores() == os.cpu_count()


def test_gpus_are_named_as_the_environment_names_them(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert gpus() == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-5")
    assert gpus() == ["3", "GPU-5"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpus() == []


def test_keep_buffers_says_whether_it_worked(monkeypatch):
    assert allocator.keep_buffers() is sys.platform.startswith("linux")
    monkeypatch.setattr(allocator.sys, "platform", "darwin")
    assert allocator.keep_buffers() is False


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the thresholds are glibc's")
@pytest.mark.parametrize("fails", [False, True])
def test_buffers_are_kept_again_after_work_of_other_sizes(fails, monkeypatch):
    calls = []
    monkeypatch.setattr(allocator, "_keeps", True)
    monkeypatch.setattr(allocator, "_set_thresholds", lambda mapped, trimmed: calls.append(trimmed) or True)
    with suppress(ZeroDivisionError), allocator.returning():
        assert calls == [allocator._RETURN]
        1 / (not fails)
    assert calls == [allocator._RETURN, allocator._KEEP]
    assert allocator._keeps


def test_nothing_is_kept_that_was_not_before(monkeypatch):
    monkeypatch.setattr(allocator, "_keeps", False)
    monkeypatch.setattr(allocator, "_set_thresholds", lambda *sizes: pytest.fail("thresholds were changed"))
    with allocator.returning():
        pass
    assert not allocator._keeps


def test_openmp_run_times_are_read_from_the_maps_of_the_process(monkeypatch, tmp_path):
    line = "7f00-7f01 r-xp 00000000 00:01 1    {}\n"
    maps = tmp_path / "maps"
    names = [
        "/a/libgomp.so.1",
        "/a/libgomp.so.1",
        "/b/lib iomp/libiomp5.so",
        "/c/libomp.so",
        "/c/libgomp-a34b.so.1",
        "/c/libcomp.so",
    ]
    maps.write_text("".join(map(line.format, names)) + "7f02-7f03 rw-p 00000000 00:00 0\n")
    monkeypatch.setattr(environment, "Path", lambda path: maps if path == "/proc/self/maps" else Path(path))
    assert openmp_run_times() == ["/a/libgomp.so.1", "/b/lib iomp/libiomp5.so", "/c/libgomp-a34b.so.1", "/c/libomp.so"]
    maps.unlink()
    assert openmp_run_times() == []
