"""Shared test settings."""

import pytest
import torch
from hypothesis import HealthCheck, settings

settings.register_profile("regrow", deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("regrow")


@pytest.fixture(autouse=True)
def one_thread():
    """Small tensors: threads cost more than they give. Also one seed, so that a failure repeats."""
    torch.manual_seed(0)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
