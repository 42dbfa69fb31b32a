"""Train a network on MNIST whose hidden layers cannot exist dense: three of 600,000 units, 72 million weights; dense 2.9 TB.

    python examples/too_large_for_dense.py --steps 20      # a quick look: memory, speed, what an epoch would take
    python examples/too_large_for_dense.py                 # three epochs, and the test error

Connections are drawn as Erdos-Renyi does, and SET (Mocanu et al. 2018) replaces the smallest by random ones. Nothing of a layer's
dense size is ever made: not the mask, not the gradient, not the optimizer's state.
"""

from __future__ import annotations

import argparse
import math
import resource
import time

import torch
from torch import nn

import regrow
from regrow import data
from regrow.nn import SparseLinear

PER_UNIT = 22  # connections that each unit of both layers brings
PIXELS, CLASSES = 784, 10


def layer(inputs: int, outputs: int, seed: int) -> nn.Linear:
    """About PER_UNIT (inputs + outputs) weights, so large at first that signals keep their size through so few of them."""
    density = min(1.0, PER_UNIT * (inputs + outputs) / (inputs * outputs))
    made = SparseLinear(inputs, outputs, density, seed=seed)
    bound = math.sqrt(6 / (density * inputs))
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            parameter.zero_() if name == "bias" else parameter.uniform_(-bound, bound)
    return made


def network(units: int) -> nn.Module:
    """Three hidden layers; the last weights are few, and stay dense."""
    torch.manual_seed(0)
    hidden = [layer(PIXELS if k == 0 else units, units, seed=k) for k in range(3)]
    stack = [module for linear in hidden for module in (linear, nn.ReLU())]
    return nn.Sequential(nn.Flatten(), *stack, nn.Linear(units, CLASSES))


@torch.no_grad()
def error(model: nn.Module, images: data.Dataset, batch: int) -> float:
    """Share of wrong answers."""
    wrong = sum(int((model(x).argmax(1) != y).sum()) for x, y in images.batches(batch_size=batch))
    return wrong / len(images)


def gigabytes() -> float:
    """The most memory this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def main() -> None:
    """Build, train, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--units", type=int, default=600_000, help="of each hidden layer")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=0, help="end after so many, without the test error")
    parser.add_argument("--data", default="mnist", help="mnist, or synthetic data of the same form")
    options = parser.parse_args()

    train = data.load(options.data, "train")
    began = time.monotonic()
    model = network(options.units)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    per_epoch = train.steps_per_epoch(options.batch)
    steps = options.steps or options.epochs * per_epoch
    handle = regrow.sparsify(
        model, optimizer, "set", execution="sparse", storage="compact", scope=regrow.Scope(dense=("@last",)),
        steps=steps, update_every=max(1, steps // 5),
    )  # fmt: skip
    print(f"{handle}; built in {time.monotonic() - began:.0f} s, {gigabytes():.1f} GB", flush=True)

    seconds: list[float] = []
    for epoch in range(options.epochs):
        for images, labels in train.batches(epoch, options.batch):
            if handle.step == steps:
                break
            now = time.monotonic()
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            seconds.append(time.monotonic() - now)
            if handle.step % max(1, steps // 20) == 0:
                print(
                    f"step {handle.step}: loss {loss.item():.3f}, {seconds[-1]:.1f} s, {gigabytes():.1f} GB", flush=True
                )
    usual = sorted(seconds)[len(seconds) // 2]
    print(f"{usual:.2f} s per step of {options.batch} images (median): {usual * per_epoch / 60:.1f} min per epoch")
    print(f"{handle.updates} topology updates, at most {gigabytes():.2f} GB")
    if not options.steps:
        print(f"test error {error(model, data.load(options.data, 'test'), options.batch):.2%}")


if __name__ == "__main__":
    main()
