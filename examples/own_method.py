"""Your own prune, redistribute and grow as plain functions; then a method of your own with a name.

python examples/own_method.py
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import regrow
from regrow.topology.prune import floor_fraction
from regrow.topology.schedule import cosine

STEPS, EVERY = 300, 50


# A score is a function of one layer that returns a number per weight: pruning removes the smallest, growth takes the largest.


def unit_relative(layer: regrow.LayerView) -> Tensor:
    """Prune: |w| relative to the mean of its output unit, so that no unit loses all its inputs at once."""
    size = layer.units(layer.weight.abs())
    return layer.from_units(size / (size.mean(1, keepdim=True) + 1e-12))


# What a criterion reads of *missing* weights must be declared, so that it is collected before the update.


@regrow.needs("momentum", "gradient")
def steady_gradient(layer: regrow.LayerView) -> Tensor:
    """Grow: large momentum that the current gradient agrees with."""
    agrees = layer.momentum.sign() == layer.gradient.sign()
    return layer.momentum.abs() * torch.where(agrees, 1.0, 0.1)


# A share is a function of one layer that returns one number: freed weights go to layers in proportion.


def room_left(layer: regrow.LayerView) -> float:
    """Redistribute: to layers with many missing weights."""
    return float(layer.missing) ** 0.5


def cautious(prune_rate: float = 0.1) -> regrow.Method:
    """A method is a record of pieces. Its options are the arguments of the function that builds it."""
    return regrow.Method(
        name="cautious",
        paper="own work",
        year=2026,
        summary="few weights move, where momentum and gradient agree",
        distribution="erk",
        prune=regrow.Prune(score=unit_relative, count=floor_fraction),
        redistribute=regrow.Redistribute(share=room_left),
        grow=regrow.Grow(score=steady_gradient, state="seed"),
        when=regrow.When(every=EVERY),
        rate=cosine(prune_rate),
        extra_memory="1 dense tensor per layer in growth windows",
    )


def train(name: str, **arguments) -> None:
    """Fit a fixed random teacher network (a synthetic task) and report the loss."""
    torch.manual_seed(0)
    teacher = nn.Sequential(nn.Linear(20, 16), nn.Tanh(), nn.Linear(16, 1))
    student = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9)
    sparse = regrow.sparsify(student, optimizer, density=0.3, steps=STEPS, update_every=EVERY, **arguments)
    for _ in range(STEPS):
        inputs = torch.randn(128, 20)
        loss = nn.functional.mse_loss(student(inputs), teacher(inputs).detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"{name}: loss {loss.item():.4f}, {sparse.nonzeros} weights, {sparse.updates} topology updates")


def main() -> None:
    """First own criteria inside sparse momentum, then the own method by its name."""
    train("own criteria", prune=unit_relative, redistribute=room_left, grow=steady_gradient)
    regrow.register(cautious)
    train("own method", method="cautious", prune_rate=0.2)


if __name__ == "__main__":
    main()
