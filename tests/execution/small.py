"""A small convolutional network and its training loop, for every execution."""

import torch
from torch import nn

import regrow


def net(dropout=0.0):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 12, 3, stride=2),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Flatten(),
        nn.Linear(12, 16),
        nn.ReLU(),
        nn.Linear(16, 5),
    )


def start(execution, method="sparse-momentum", model=None, **options):
    model = net() if model is None else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4)
    options = {"density": 0.3, "steps": 40, "update_every": 8, "window_tolerance": 0.5, **options}
    return model, optimizer, regrow.sparsify(model, optimizer, method, execution=execution, **options)


def train(model, optimizer, steps, first=0):
    """Losses of steps on data that depend on the step alone."""
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
