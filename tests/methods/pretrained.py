"""A small classifier and one batch, for methods that score weights before training."""

import torch
from torch import nn

import regrow

WEIGHTS = 95
SPARSE = ("0.weight", "2.weight", "4.weight")


def classifier(dtype=torch.float32):
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 6), nn.Tanh(), nn.Linear(6, 3)).to(dtype)


def batch(dtype=torch.float32):
    source = torch.Generator().manual_seed(5)
    return torch.randn(12, 5, generator=source, dtype=dtype), torch.arange(12) % 3


def masks_of(method, density=0.3, dtype=torch.float32, scale=1.0, **arguments):
    model = classifier(dtype)
    inputs, targets = batch(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if "calibration" not in arguments:
        arguments["calibration"] = lambda: scale * nn.functional.cross_entropy(model(inputs), targets)
    handle = regrow.sparsify(model, optimizer, method, density=density, **arguments)
    return model, list(handle.masks.values())


def top(scores, density):
    """Masks of the largest scores over all layers, each layer keeping its best, by plain sorting."""
    count = int(density * WEIGHTS + 0.5)
    best = {(k, max(range(s.numel()), key=lambda i: float(s.view(-1)[i]))) for k, s in enumerate(scores)}
    rest = sorted(
        ((-float(v), k, i) for k, s in enumerate(scores) for i, v in enumerate(s.reshape(-1)) if (k, i) not in best)
    )
    chosen = best | {(k, i) for _, k, i in rest[: count - len(best)]}
    return [torch.tensor([(k, i) in chosen for i in range(s.numel())]).view_as(s) for k, s in enumerate(scores)]
