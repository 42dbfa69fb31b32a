"""Random networks, sparse against masked in double precision: every output, gradient, buffer, weight and mask of six steps.

Rounding may decide a tie between two weights, or on which side of a kink a unit lies. So a difference counts as traced if masked
execution itself comes out as differently when weights and gradients are moved by 1e-13, or by 1e-11, which is what rounding makes of
gradients that nearly cancel (means behind a batch norm); else it is wrong. (Gradients too: those of two
taps of a kernel are equal by construction where maps have constant borders, whatever the weights.)
"""

import itertools
import random

import torch
from torch import nn

import regrow
from regrow.errors import UnsupportedError

METHODS = ["sparse-momentum", "set", "rigl", "static", "itop", "mest", "granet"]
STEPS, CLOSE, MOVED = 6, 1e-8, (1e-13, 1e-11)


def linear_net(rng):
    widths = [rng.randrange(3, 20) for _ in range(rng.randrange(3, 6))]
    modules = []
    for into, out in itertools.pairwise(widths):
        modules += [
            nn.Linear(into, out, bias=rng.random() < 0.8),
            rng.choice([nn.ReLU(), nn.Tanh(), nn.BatchNorm1d(out)]),
        ]
    return nn.Sequential(*modules[:-1]), (widths[0],)


class Block(nn.Module):
    def __init__(self, channels, inplace):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels))
        self.relu = nn.ReLU(inplace=inplace)

    def forward(self, x):
        return self.relu(self.body(x) + x)


def conv_net(rng):
    channels, size = rng.randrange(2, 7), rng.randrange(6, 11)
    modules = [nn.Conv2d(3, channels, rng.choice([1, 3]), padding=1)]
    for _ in range(rng.randrange(1, 4)):
        modules.append(
            rng.choice(
                [
                    nn.Conv2d(channels, channels, 3, padding=1),
                    nn.BatchNorm2d(channels, momentum=rng.choice([0.1, None]), affine=rng.random() < 0.7),
                    nn.ReLU(inplace=rng.random() < 0.5 and not _ends_rectified(modules[-1])),
                    nn.MaxPool2d(2, ceil_mode=rng.random() < 0.5),
                    nn.AvgPool2d(2),
                    Block(channels, rng.random() < 0.5),
                ]
            )
        )
    return nn.Sequential(*modules, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 4)), (3, size, size)


def _ends_rectified(module):
    """Whether torch keeps this module's output for its backward pass, and refuses one that was written to."""
    return isinstance(module, (nn.ReLU, Block))


class UNet(nn.Module):
    def __init__(self, channels, inplace):
        super().__init__()
        self.enter = nn.Conv2d(3, channels, 3, padding=1)
        self.down = nn.Sequential(
            nn.ReLU(inplace=inplace), nn.MaxPool2d(2), nn.Conv2d(channels, channels, 3, padding=1)
        )
        self.up = nn.ConvTranspose2d(channels, channels, 2, stride=2)
        self.leave = nn.Conv2d(2 * channels, 2, 1)

    def forward(self, x):
        y = self.enter(x)
        return self.leave(torch.cat([self.up(self.down(y)), y], 1)).flatten(1)


def u_net(rng):
    return UNet(rng.randrange(2, 6), rng.random() < 0.5), (3, 8, 8)


def run(seed, execution, moved=0, size=0.0, storage="dense"):
    """All numbers of a short training run, in order."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    net, shape = rng.choice([linear_net, conv_net, u_net])(rng)
    net = net.double()
    generator = torch.Generator().manual_seed(moved)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(
                torch.randn(parameter.shape, dtype=torch.float64) * 0.1
            )  # also biases, norms: nothing is exactly equal
            if moved:
                parameter.mul_(_nearly_one(parameter, size, generator))
                parameter.register_hook(lambda gradient: gradient * _nearly_one(gradient, size, generator))
    optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9, nesterov=rng.random() < 0.5)
    options = {
        "density": rng.choice([0.3, 0.5, 0.7]),
        "steps": 20,
        "update_every": 2,
        "execution": execution,
        "storage": storage,
    }
    handle = regrow.sparsify(net, optimizer, rng.choice(METHODS), **options)
    found = []
    for _ in range(STEPS):
        x = torch.randn(rng.choice([2, 5, 8]), *shape, dtype=torch.float64, requires_grad=True)
        optimizer.zero_grad()
        y = net(x)
        y.square().mean().backward()
        present = [sparse.dense(sparse.parameter.grad) * sparse.mask for sparse in handle.parameters]
        optimizer.step()
        found += [y.detach(), x.grad, *present, *(t.detach().clone() for t in net.state_dict().values())]
        found += [mask.double() for mask in handle.masks.values()]
    return found


def _nearly_one(like, size, generator):
    return 1 + size * torch.randn(like.shape, dtype=torch.float64, generator=generator)


def distance(a, b):
    """The largest difference, relative to the largest number of its tensor."""
    pairs = [(x.double(), y.double()) for x, y in zip(a, b, strict=True) if x.numel()]
    return max(float((x - y).abs().max() / y.abs().max().clamp(min=1e-6)) for x, y in pairs)


def compact_agrees(seed):
    """Whether compact storage gives the bits of dense storage; None where a layer or the method needs a dense one."""
    try:
        compact = run(seed, "sparse", storage="compact")
    except UnsupportedError:
        return None
    return all(torch.equal(a, b) for a, b in zip(compact, run(seed, "sparse"), strict=True))


def judged(seed):
    """`same`, `traced` or `wrong`."""
    masked = run(seed, "masked")
    if distance(run(seed, "sparse"), masked) <= CLOSE:
        return "same"
    moves = ((moved, size) for size in MOVED for moved in range(1, 7))
    return "traced" if any(distance(run(seed, "masked", *move), masked) > CLOSE for move in moves) else "wrong"
