"""Shared test settings."""

import os

import pytest
import torch
from hypothesis import settings

settings.register_profile("fast", deadline=None, max_examples=int(os.environ.get("REGROW_EXAMPLES", "200")))
settings.load_profile("fast")


@pytest.fixture(autouse=True)
def one_thread():
    """Small tensors: threads cost more than they give, and two cores are shared."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
