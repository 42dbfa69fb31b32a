"""Train the same small network dense and at 10% density, and show where the weights went.

    python examples/quickstart.py

The task is synthetic, so that nothing has to be downloaded: inputs are random 16x16 "images", and the label says which of ten
fixed, smooth random patterns is mixed into the noise. It shows how to use the library and proves nothing about real data.
"""

from __future__ import annotations

import torch
from rich.console import Console
from torch import Tensor, nn

import regrow

CLASSES, SIDE, BATCH, EPOCHS = 10, 16, 100, 6


def synthetic_images(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Noise with the pattern of a class mixed in; the patterns are the same for every seed."""
    coarse = torch.randn(CLASSES, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    prototypes = nn.functional.interpolate(coarse, size=(SIDE, SIDE), mode="bilinear")
    source = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=source)
    noise = torch.randn(count, 1, SIDE, SIDE, generator=source)
    return 0.5 * prototypes[labels] + noise, labels


def network() -> nn.Module:
    """Two convolutions and two linear layers, the same initial weights each time."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, CLASSES),
    )  # fmt: skip


def train(model: nn.Module, optimizer: torch.optim.Optimizer, inputs: Tensor, labels: Tensor) -> None:
    """An ordinary loop: it does not know about sparsity."""
    shuffle = torch.Generator().manual_seed(1)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(inputs), generator=shuffle).split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs[batch]), labels[batch]).backward()
            optimizer.step()


@torch.no_grad()
def accuracy(model: nn.Module, inputs: Tensor, labels: Tensor) -> float:
    """Share of correct answers."""
    return float((model(inputs).argmax(1) == labels).float().mean())


def main() -> None:
    """Dense, then sparse."""
    console = Console(width=120)
    inputs, labels = synthetic_images(4000, seed=1)
    test_inputs, test_labels = synthetic_images(2000, seed=2)
    per_epoch = len(inputs) // BATCH

    dense = network()
    train(dense, torch.optim.SGD(dense.parameters(), lr=0.05, momentum=0.9, nesterov=True), inputs, labels)

    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    sparse = regrow.sparsify(model, optimizer, density=0.1, steps=EPOCHS * per_epoch, update_every=per_epoch)
    console.print("before training", sparse.plan(test_inputs[:1]), sep="\n")
    train(model, optimizer, inputs, labels)
    console.print("after training", sparse.plan(test_inputs[:1]), sep="\n")

    for record in sparse.journal:
        moved = sum(layer.grown for layer in record.layers)
        console.print(f"step {record.step}: prune rate {record.prune_rate:.3f}, {moved:,} weights moved")
    console.print(f"{sparse.nonzeros:,} of {sparse.numel:,} weights, {sparse.updates} topology updates")
    console.print(f"test accuracy on the synthetic task: dense {accuracy(dense, test_inputs, test_labels):.1%}")
    console.print(f"test accuracy on the synthetic task: sparse {accuracy(model, test_inputs, test_labels):.1%}")


if __name__ == "__main__":
    main()
