"""Functional pooling between sparse layers: correct, and named by `explain()`."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from regrow import native
from tests.execution.small import start, train

pytestmark = pytest.mark.skipif(not native.available(), reason="native kernels not built")


class Pooled(nn.Module):
    """Two convolutions with a pooling function between them, and a linear layer."""

    def __init__(self, pool):
        super().__init__()
        self.pool = pool
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.second, self.head = nn.Conv2d(8, 6, 3, padding=1), nn.Linear(6, 5)
        self.end = nn.AdaptiveAvgPool2d(1)

    def forward(self, x):
        x = self.pool(F.relu(self.norm(self.first(x))))
        return self.head(self.end(F.relu(self.second(x))).flatten(1))


FUNCTIONS = {
    "nn.MaxPool2d keeps it": lambda x: F.max_pool2d(x, 2),
    "avg_pool2d (nn.AvgPool2d": lambda x: F.avg_pool2d(x, 3, 2),
    "adaptive_avg_pool2d (nn.AdaptiveAvgPool2d": lambda x: F.adaptive_avg_pool2d(x, 4),
    "nn.AdaptiveAvgPool2d(1) keeps it": lambda x: x.mean((2, 3), keepdim=True) + torch.zeros(1, 1, 2, 2),
}


def pooled(pool, execution):
    torch.manual_seed(0)
    return start(execution, model=Pooled(pool))


@pytest.mark.parametrize("hint", FUNCTIONS)
def test_functional_pooling_is_correct_and_named(hint):
    model, optimizer, handle = pooled(FUNCTIONS[hint], "sparse")
    masked, its_optimizer, _ = pooled(FUNCTIONS[hint], "masked")
    assert train(model, optimizer, 10) == pytest.approx(train(masked, its_optimizer, 10), rel=1e-4)
    reasons = {row.layer: row.reason for row in handle.explain()}
    assert hint in reasons["second"]
    assert "its input left the layout in" in reasons["second"]
    assert reasons["first"] == reasons["head"] == "native kernels"


@pytest.mark.parametrize("pool", [nn.MaxPool2d(2), nn.AvgPool2d(2), nn.Identity()])
def test_modules_keep_the_layout(pool):
    model, optimizer, handle = pooled(pool, "sparse")
    train(model, optimizer, 1)
    assert {row.reason for row in handle.explain()} == {"native kernels"}


def test_pooling_of_ordinary_activations_is_no_fault():
    model, optimizer, handle = pooled(FUNCTIONS["nn.MaxPool2d keeps it"], "sparse")
    handle.switch._compute_sparse(["second", "head"])
    train(model, optimizer, 1)
    assert {row.layer: row.reason for row in handle.explain()}["second"] == "native kernels"
