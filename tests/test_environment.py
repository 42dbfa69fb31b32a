"""What a run tells of its machine, and the allocator."""

import json
import sys

import torch

from regrow import allocator
from regrow.environment import describe, processor_name


def test_describe_is_json_and_names_versions():
    found = describe()
    assert json.loads(json.dumps(found)) == found
    assert found["torch"] == torch.__version__
    assert found["threads"] == torch.get_num_threads()
    assert processor_name()


def test_keep_buffers_says_whether_it_worked(monkeypatch):
    assert allocator.keep_buffers() is sys.platform.startswith("linux")
    monkeypatch.setattr(allocator.sys, "platform", "darwin")
    assert allocator.keep_buffers() is False
