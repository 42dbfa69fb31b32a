"""Two gloo processes agree, for every registered method, and one that does not agree is found."""

from dataclasses import replace

import pytest
import torch.distributed as dist

import regrow
from regrow.methods import build
from regrow.testing import check_ranks

VARIANTS = [
    ("nest", {"width": 0.5}),
    ("bayesian-compression", {"prior": "horseshoe"}),
    ("l-obs", {"updates": "summed"}),
]


def test_two_ranks_agree_for_every_method():
    check_ranks([*(method.name for method in regrow.list_methods(show=False)), *VARIANTS])


def _pushes_by_rank(layer):
    layer.grad.add_(0.01 * dist.get_rank())


def broken():
    return replace(build("static", {}), name="own", adjust=_pushes_by_rank)


def sound():
    return replace(build("static", {}), name="own")


def test_a_method_whose_ranks_differ_is_caught():
    check_ranks([sound])
    with pytest.raises(AssertionError, match=r"method own .*: rank 1 ends elsewhere than rank 0"):
        check_ranks([broken])
