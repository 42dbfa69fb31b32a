"""Whole sparse runs and optimizer steps in plain torch, written from the papers: what regrow's runs must equal.

Networks are tanh MLPs in float64, weights and masks plain lists of tensors. Nothing here comes from the package.
"""

import math
import random

import torch
from torch import nn

import regrow
from tests.support.oracle import update as momentum_update


def case(number):
    """The sizes and settings of one random run."""
    draw = random.Random(number)
    widths = [draw.randint(3, 9), *(draw.randint(4, 12) for _ in range(draw.randint(1, 3))), draw.randint(2, 5)]
    return {
        "widths": widths,
        "density": draw.choice([0.2, 0.35, 0.5, 0.8]),
        "steps": draw.randint(10, 24),
        "every": draw.randint(2, 5),
        "lr": draw.choice([0.01, 0.05, 0.2]),
        "momentum": draw.choice([0.5, 0.9]),
        "decay": draw.choice([0.0, 1e-2]),
        "nesterov": draw.random() < 0.5,
        "rate": draw.choice([0.2, 0.3, 0.5]),
        "seed": number,
    }


def network(found):
    torch.manual_seed(found["seed"])
    layers = []
    for inner, outer in zip(found["widths"], found["widths"][1:], strict=False):
        layers += [nn.Linear(inner, outer), nn.Tanh()]
    return nn.Sequential(*layers[:-1]).double()


def batches(found):
    source = torch.Generator().manual_seed(found["seed"])
    shapes = (16, found["widths"][0]), (16, found["widths"][-1])
    return [
        tuple(torch.randn(*s, generator=source, dtype=torch.float64) for s in shapes) for _ in range(found["steps"])
    ]


def regrown(method, found, execution="masked", **options):
    """The run by regrow: first masks, and weights, biases and masks after each step."""
    model = network(found)
    optimizer = torch.optim.SGD(
        model.parameters(), found["lr"], found["momentum"], weight_decay=found["decay"], nesterov=found["nesterov"]
    )
    handle = regrow.sparsify(
        model, optimizer, method, density=found["density"], steps=found["steps"], update_every=found["every"], seed=found["seed"],
        distribution="uniform", execution=execution, prune_rate=found["rate"], **options,
    )  # fmt: skip
    first = [mask.clone() for mask in handle.masks.values()]
    seen = []
    for inputs, targets in batches(found):
        optimizer.zero_grad()
        (model(inputs) - targets).square().mean().backward()
        optimizer.step()
        parameters = [p.detach().clone() for p in model.parameters()]
        seen.append((parameters, [mask.clone() for mask in handle.masks.values()]))
    return first, seen


def simulated(method, found, masks):
    """The same run from the paper, with these first masks."""
    model = network(found)
    parameters = list(model.parameters())
    weights = parameters[::2]
    buffers = [torch.zeros_like(p) for p in parameters]
    masks = [mask.clone() for mask in masks]
    _mask(weights, masks)
    for step, (inputs, targets) in enumerate(batches(found)):
        gradients = torch.autograd.grad((model(inputs) - targets).square().mean(), parameters)
        with torch.no_grad():
            if method == "rigl" and step % found["every"] == 0 and step / found["steps"] < 0.75:
                masks = _rigl(found, step, weights, masks, gradients[::2], buffers[::2])
            else:
                _sgd(found, parameters, gradients, buffers, masks if method == "rigl" else None)
                _mask(weights, masks)
                done = step + 1
                if method == "sparse-momentum" and done % found["every"] == 0 and done < found["steps"]:
                    masks = _sparse_momentum(found, done, weights, masks, buffers[::2])
        yield [p.detach().clone() for p in parameters], masks


def _mask(weights, masks):
    for weight, mask in zip(weights, masks, strict=True):
        weight.data.mul_(mask)


def _sgd(found, parameters, gradients, buffers, masks):
    """v <- mu v + g + lambda w;  w <- w - lr (v, or g + mu v).  Sparse momentum keeps v of missing weights too (``masks`` None)."""
    for index, (p, g, v) in enumerate(zip(parameters, gradients, buffers, strict=True)):
        g = g + found["decay"] * p
        if masks is not None and index % 2 == 0:
            g = g * masks[index // 2]
        v.mul_(found["momentum"]).add_(g)
        p.sub_(found["lr"] * (g + found["momentum"] * v if found["nesterov"] else v))


def _rigl(found, step, weights, masks, gradients, buffers):
    """Evci et al.: drop floor(f nnz) of the smallest |w|, grow as many of the largest |g| among missing and dropped ones."""
    f = found["rate"] / 2 * (1 + math.cos(math.pi * step / (0.75 * found["steps"])))
    fresh = []
    for weight, mask, gradient, buffer in zip(weights, masks, gradients, buffers, strict=True):
        count = math.floor(f * int(mask.sum()) + 1e-9)
        present = mask.flatten().nonzero().flatten().tolist()
        dropped = sorted(present, key=lambda i: (float(weight.flatten()[i].abs()), i))[:count]
        missing = sorted({*range(mask.numel())} - {*present} | {*dropped})
        grown = sorted(missing, key=lambda i: (-float(gradient.flatten()[i].abs()), i))[:count]
        after = mask.flatten().clone()
        after[dropped] = False
        after[grown] = True
        after = after.view_as(mask)
        born = after & ~mask
        weight.data.mul_(after & mask)
        buffer.mul_(after & mask)
        assert not bool(weight[born].any())
        fresh.append(after)
    return fresh


def _sparse_momentum(found, step, weights, masks, buffers):
    """Dettmers & Zettlemoyer: one update of the plain-list oracle on weights and momentum of all positions."""
    rate = found["rate"] / 2 * (1 + math.cos(math.pi * step / found["steps"]))
    layers = [
        {
            "weight": w.flatten().tolist(),
            "mask": m.flatten().tolist(),
            "momentum": b.flatten().tolist(),
            "units": w.shape[0],
        }
        for w, m, b in zip(weights, masks, buffers, strict=True)
    ]
    found_masks, _, _ = momentum_update(layers, rate)
    fresh = [torch.tensor(new).view_as(old) for new, old in zip(found_masks, masks, strict=True)]
    _mask(weights, fresh)
    return fresh


def compare(method, number, execution="masked"):
    """Largest difference of any parameter over a whole run; None where masks differ."""
    found = case(number)
    # The paper to the letter: by default grown weights begin gently.
    options = {"window_tolerance": 0, "grown_momentum": "keep", "warmup": 0} if method == "sparse-momentum" else {}
    first, seen = regrown(method, found, execution, **options)
    largest = 0.0
    for (mine, masks), (theirs, expected) in zip(seen, simulated(method, found, first), strict=True):
        if not all(torch.equal(a, b) for a, b in zip(masks, expected, strict=True)):
            return None
        largest = max([largest, *(float((a - b).abs().max()) for a, b in zip(mine, theirs, strict=True))])
    return largest


def step_case(number):
    """A random optimizer: its class and arguments."""
    draw = random.Random(number)
    shared = {
        "lr": draw.choice([1e-3, 0.05]),
        "weight_decay": draw.choice([0.0, 0.02]),
        "maximize": draw.random() < 0.3,
    }
    if draw.random() < 0.5:
        momentum = draw.choice([0.0, 0.9])
        nesterov = momentum > 0 and draw.random() < 0.5
        dampening = 0.0 if nesterov else draw.choice([0.0, 0.3])
        return torch.optim.SGD, {**shared, "momentum": momentum, "nesterov": nesterov, "dampening": dampening}
    return torch.optim.AdamW, {**shared, "betas": (draw.choice([0.5, 0.9]), 0.99), "amsgrad": draw.random() < 0.3}


def step_difference(number, steps=8):
    """Sparse execution with the native step against torch's optimizer on masked gradients: largest difference of weights."""
    kind, arguments = step_case(number)
    torch.manual_seed(number)
    draw = random.Random(number)
    sizes = [draw.randint(4, 40), draw.randint(8, 64), draw.randint(2, 12)]
    ours = nn.Sequential(nn.Linear(*sizes[:2]), nn.ReLU(), nn.Linear(*sizes[1:])).double()
    theirs = nn.Sequential(nn.Linear(*sizes[:2]), nn.ReLU(), nn.Linear(*sizes[1:])).double()
    first, second = kind(ours.parameters(), **arguments), kind(theirs.parameters(), **arguments)
    handle = regrow.sparsify(ours, first, "static", density=draw.choice([0.05, 0.1, 0.3]) + 0.05, execution="sparse")
    theirs.load_state_dict(ours.state_dict())
    masks = [handle.masks["0"], None, handle.masks["2"], None]
    for _ in range(steps):
        inputs, targets = torch.randn(9, sizes[0], dtype=torch.float64), torch.randn(9, sizes[2], dtype=torch.float64)
        for model, optimizer in ((ours, first), (theirs, second)):
            optimizer.zero_grad()
            (model(inputs) - targets).square().mean().backward()
        for parameter, mask in zip(theirs.parameters(), masks, strict=True):
            if mask is not None:
                parameter.grad.mul_(mask)
        first.step()
        second.step()
    return max(float((a - b).detach().abs().max()) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
