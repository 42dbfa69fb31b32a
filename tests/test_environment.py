"""What a run tells of its machine, and the allocator."""

import json
import os
import sys

import torch

from regrow import allocator
from regrow.environment import cores, describe, processor_name


def test_describe_is_json_and_names_versions():
    found = describe()
    assert json.loads(json.dumps(found)) == found
    assert found["torch"] == torch.__version__
    assert found["threads"] == torch.get_num_threads()
    assert processor_name()


def test_cores_are_those_that_this_process_may_use(monkeypatch):
    assert 1 <= cores() <= os.cpu_count()
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 5}, raising=False)
    assert cores() == 2
    monkeypatch.delattr(os, "sched_getaffinity")
    assert cores() == os.cpu_count()


def test_keep_buffers_says_whether_it_worked(monkeypatch):
    assert allocator.keep_buffers() is sys.platform.startswith("linux")
    monkeypatch.setattr(allocator.sys, "platform", "darwin")
    assert allocator.keep_buffers() is False
