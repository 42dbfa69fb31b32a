"""A small network under `auto`, and stopwatches that measure what a test wants."""

import torch
from torch import nn

import regrow


class Stopwatch:
    """Milliseconds by the first of (part of a name, figure) that fits; remembers what it was asked for."""

    def __init__(self, *figures, otherwise=1.0, runs=False):
        self.figures, self.otherwise, self.runs, self.asked = list(figures), otherwise, runs, []

    def __call__(self, candidates):
        self.asked += list(candidates)
        if self.runs:
            for run in candidates.values():
                run()
        return {name: self._figure(name) for name in candidates}

    def _figure(self, name):
        return next((ms for part, ms in self.figures if part in name), self.otherwise)


SPARSE_WINS = (("whole model, masked", 50.0), ("whole model", 5.0), (" dense", 10.0), ("random", 8.0), ("enter", 0.1))
DENSE_WINS = (
    ("whole model, masked", 50.0),
    ("whole model", 90.0),
    (" dense", 1.0),
    (" sparse", 9.0),
    (" window", 9.0),
    ("enter", 0.1),
)


def net():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 12, 3, stride=2),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Flatten(),
        nn.Linear(12, 16),
        nn.ReLU(),
        nn.Linear(16, 5),
    )


def start(timer, execution="auto", method="sparse-momentum", model=None, **options):
    model = net() if model is None else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4)
    options = {"density": 0.3, "steps": 40, "update_every": 8, "window_tolerance": 0.5, **options}
    handle = regrow.sparsify(model, optimizer, method, **options)
    handle.switch.timer = timer
    handle.execute(execution)
    return model, optimizer, handle


def train(model, optimizer, steps, first=0):
    losses = []
    for step in range(first, first + steps):
        torch.manual_seed(step)
        x, y = torch.randn(20, 3, 8, 8), torch.randint(5, (20,))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def sparse_layers(handle):
    return {row.layer for row in handle.explain() if row.execution == "sparse"}
