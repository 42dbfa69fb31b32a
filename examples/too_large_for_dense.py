"""Train a network on MNIST whose hidden layers cannot exist dense: three of 600,000 units, 72 million weights in all; dense 2.9 TB.

    python examples/too_large_for_dense.py --steps 20      # a quick look: memory, speed, what an epoch would take
    python examples/too_large_for_dense.py                 # half an epoch, and the test error

Connections are drawn as Erdos-Renyi does, and SET (Mocanu et al. 2018) replaces the smallest by random ones. Nothing of a layer's
dense size is ever made: not the mask, not the gradient, not the optimizer's state.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import resource
import time
from collections.abc import Iterator

# torch asks for huge pages: maps of 300 MB come and go in every step.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch import nn

import regrow
from regrow import allocator, data
from regrow.nn import SparseLinear

PER_UNIT = 22  # connections that each unit of both layers brings
PIXELS, CLASSES = 784, 10
STEP, LAST_STEP = 0.004, 10.0  # learning rates; the last layer's is shared out among its inputs


def layer(inputs: int, outputs: int, seed: int) -> nn.Linear:
    """About PER_UNIT (inputs + outputs) weights, so large at first that signals keep their size through so few of them."""
    density = min(1.0, PER_UNIT * (inputs + outputs) / (inputs * outputs))
    made = SparseLinear(inputs, outputs, density, seed=seed)
    bound = math.sqrt(6 / (density * inputs))
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            parameter.zero_() if name == "bias" else parameter.uniform_(-bound, bound)
    return made


def network(units: int) -> nn.Sequential:
    """Three hidden layers; the last weights are few, and stay dense."""
    torch.manual_seed(0)
    hidden = [layer(PIXELS if k == 0 else units, units, seed=k) for k in range(3)]
    stack = [module for linear in hidden for module in (linear, nn.ReLU(inplace=True))]
    return nn.Sequential(nn.Flatten(), *stack, nn.Linear(units, CLASSES))


@torch.no_grad()
def error(model: nn.Module, images: data.Dataset, batch: int) -> float:
    """Share of wrong answers."""
    wrong = sum(int((model(x).argmax(1) != y).sum()) for x, y in images.batches(batch_size=batch))
    return wrong / len(images)


def gigabytes() -> float:
    """The most memory this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def optimizer_of(model: nn.Sequential) -> torch.optim.Optimizer:
    """Adam, so that steps keep their size however wide the layers are; those of the last layer shrink, as all its inputs move at once."""
    *sparse, last = model
    few = [parameter for module in sparse for parameter in module.parameters()]
    groups = [{"params": few}, {"params": last.parameters(), "lr": LAST_STEP / last.in_features}]
    return torch.optim.Adam(groups, lr=STEP)


def steps_of(model: nn.Module, optimizer: torch.optim.Optimizer, batches: Iterator, count: int) -> Iterator[float]:
    """Train with steps that shrink to nothing, and tell the loss of each."""
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 1 / count, count)
    for images, labels in itertools.islice(batches, count):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        schedule.step()
        yield loss.item()


def arguments() -> argparse.Namespace:
    """Of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--units", type=int, default=600_000, help="of each hidden layer")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--epochs", type=float, default=0.5)
    parser.add_argument("--steps", type=int, default=0, help="end after so many, without the test error")
    parser.add_argument(
        "--update-every", type=int, default=0, help="steps between topology updates (default: five in all)"
    )
    parser.add_argument("--data", default="mnist", help="mnist, mnist-sample, or a folder of images of that size")
    return parser.parse_args()


def main() -> None:
    """Build, train, report."""
    options = arguments()
    allocator.keep_buffers()
    train = data.load(options.data, "train+val")
    began = time.monotonic()
    model = network(options.units)
    optimizer = optimizer_of(model)
    per_epoch = train.steps_per_epoch(options.batch)
    steps = options.steps or math.ceil(options.epochs * per_epoch)
    handle = regrow.sparsify(
        model, optimizer, "set", execution="sparse", storage="compact", scope=regrow.Scope(dense=("@last",)),
        steps=steps, update_every=options.update_every or max(1, steps // 5),
    )  # fmt: skip
    print(f"{handle}; built in {time.monotonic() - began:.0f} s, {gigabytes():.1f} GB", flush=True)

    batches = itertools.chain.from_iterable(train.batches(epoch, options.batch) for epoch in itertools.count())
    seconds, updating = [], 0.0
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        TextColumn("left"),
    )
    with Progress(*columns, TimeRemainingColumn()) as bar:
        task = bar.add_task("", total=steps)
        now, updates = time.monotonic(), 0
        for loss in steps_of(model, optimizer, batches, steps):
            last, now = now, time.monotonic()
            if handle.updates > updates:
                updates, updating = handle.updates, updating + now - last
            else:
                seconds.append(now - last)
            bar.update(task, advance=1, description=f"loss {loss:.3f}, {now - last:.1f} s, {gigabytes():.1f} GB")
            if handle.step % max(1, steps // 20) == 0:
                bar.console.print(f"step {handle.step}: loss {loss:.3f}, {now - last:.1f} s, {gigabytes():.1f} GB")
    usual = sorted(seconds)[len(seconds) // 2]
    print(f"{usual:.2f} s per step of {options.batch} images (median): {usual * per_epoch / 60:.1f} min per epoch")
    print(f"{updates} topology updates, {updating / max(1, updates) - usual:.1f} s each; at most {gigabytes():.2f} GB")
    if not options.steps:
        print(f"test error {error(model, data.load(options.data, 'test'), options.batch):.2%}")


if __name__ == "__main__":
    main()
