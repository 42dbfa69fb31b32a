"""Random small networks as plain lists; numbers are eighths, so that sums are exact in any order."""

import random

import torch
from hypothesis import strategies as st

from regrow import randomness
from tests.support.views import update, view

KINDS = ("plain", "ties", "nearly dense", "very sparse", "dead", "partly dead", "over-full", "tiny")
RATES = (0.0, 0.01, 0.05, 0.2, 0.3, 0.5, 0.9)


def cases():
    """(seed, kind of network, prune rate): cheap to draw; the seed does the rest."""
    return st.tuples(st.integers(0, 2**32), st.sampled_from(KINDS), st.sampled_from(RATES))


def random_layers(seed, kind, largest=6):
    """Layers with flat weight, mask, momentum, the seed of random growth, and a shape [units, width]."""
    rng = random.Random(f"{seed}{kind}")
    count = rng.randint(1, 5)
    return [_layer(rng, kind, place, count, 2 if kind == "tiny" else largest, seed) for place in range(count)]


def _layer(rng, kind, place, count, largest, seed):
    units, width = rng.randint(1, largest), rng.randint(1, largest)
    numel = units * width
    density = {"nearly dense": rng.uniform(0.8, 1.0), "very sparse": 0.05}.get(kind, rng.uniform(0.1, 0.9))
    present = max(1, min(numel, round(density * numel)))
    chosen = set(rng.sample(range(numel), present))
    span = 1 if kind == "ties" else 40
    scale = 64 if kind == "over-full" and place < count // 2 else 1
    dead = kind == "dead" or (kind == "partly dead" and rng.random() < 0.5)
    return {
        "units": units,
        "shape": (units, width),
        "weight": [rng.randint(-span, span) / 8 if i in chosen else 0.0 for i in range(numel)],
        "mask": [i in chosen for i in range(numel)],
        "momentum": [0.0 if dead else scale * rng.randint(-span, span) / 8 for _ in range(numel)],
        "growth_seed": randomness.seed_of(seed % 1000, 0, "grow", place),
    }


def as_update(layers, rate, seed=0, **rest):
    """The same network as the package sees it."""
    views = []
    for place, layer in enumerate(layers):
        shape = layer["shape"]
        tensors = {k: torch.tensor(layer[k]).view(shape) for k in ("weight", "momentum")}
        mask = torch.tensor(layer["mask"]).view(shape)
        views.append(
            view(
                tensors["weight"], mask, tensors["momentum"], tensors["momentum"], index=place, seed=seed % 1000,
                ever_active=mask.clone,
            )
        )  # fmt: skip
    return update(*views, rate=rate, **rest)


def flat(masks):
    return [mask.reshape(-1).tolist() for mask in masks]
