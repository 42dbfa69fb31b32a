"""Shared test set-up."""

import importlib.util
import sys

import pytest
import torch
from hypothesis import HealthCheck, settings

from regrow.amx import keep_off_traps

# Before any product: workers and child processes inherit what is found.
keep_off_traps()

# Time limits per example fail on busy machines and say nothing about the code.
settings.register_profile("regrow", deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("regrow")


def _repair_torchvision() -> None:
    """Define the two operators that a CUDA build of torchvision, which timm imports, misses beside a CPU torch."""
    if importlib.util.find_spec("torchvision") is None or torch.version.cuda is not None:
        return
    library = torch.library.Library("torchvision", "FRAGMENT")
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _LIBRARIES.append(library)


def _forget_distutils_shim() -> None:
    """Take setuptools' import hook away: it breaks itself, for the whole process, as soon as anything asks whether pip is there.

    `import setuptools` still brings its own distutils, whenever a test or torch's compiler gets to it.
    """
    shim = sys.modules.get("_distutils_hack")
    if shim is not None:
        shim.remove_shim()


# torch forgets an operator when its Library object is collected.
_LIBRARIES: list[torch.library.Library] = []
_repair_torchvision()
_forget_distutils_shim()


@pytest.fixture(autouse=True)
def _one_thread():
    """Small tensors: threads cost more than they give. Also one seed, so that a failure repeats."""
    torch.manual_seed(0)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
