"""Sparse momentum in plain Python lists and exact fractions, written from the paper's description and not from the package."""

from fractions import Fraction
from math import ceil, floor

import numpy as np


def allocate(desired, capacity):
    """Integers g with sum(g) == sum(desired), g <= capacity: excess goes equally to the layers with room."""
    total = sum(desired)
    a = [Fraction(x) for x in desired]
    while True:
        excess = sum((x - c for x, c in zip(a, capacity, strict=True) if x > c), Fraction(0))
        a = [min(x, Fraction(c)) for x, c in zip(a, capacity, strict=True)]
        room = [i for i, c in enumerate(capacity) if a[i] < c]
        if excess == 0 or not room:
            break
        for i in room:
            a[i] += excess / len(room)
    g = [floor(x) for x in a]
    while sum(g) < total:
        i = max((i for i in range(len(g)) if g[i] < capacity[i]), key=lambda i: (a[i] - g[i], -i))
        g[i] += 1
        a[i] = min(a[i], Fraction(g[i]))
    return g


def lowest(scores, count, among):
    """Indices of the count smallest scores, ties to the lower index."""
    return set(sorted(among, key=lambda i: (scores[i], i))[:count])


def highest(scores, count, among):
    """Indices of the count largest scores, ties to the lower index."""
    return set(sorted(among, key=lambda i: (-scores[i], i))[:count])


def share(layer, redistribution):
    """What a layer contributes, before pruning; only ratios between layers count."""
    active = layer["active"]
    if not active:
        return Fraction(0)
    values = {
        "momentum": lambda: sum(Fraction(abs(layer["momentum"][i])) for i in active) / len(active),
        "magnitude": lambda: sum(Fraction(abs(layer["weight"][i])) for i in active) / len(active),
        "nonzeros": lambda: Fraction(len(active)),
        "size": lambda: Fraction(layer["numel"]),
    }
    return values[redistribution]()


def removal_counts(layers, p, gate):
    """r_i = ceil(min(p, sparsity_i) * nnz_i), at least one weight stays.

    With a gate (the redistribution in use) the minimum holds only for dense layers whose share of it is above the average.
    """
    q = [share(layer, gate or "momentum") for layer in layers]
    counts = []
    for layer, mine in zip(layers, q, strict=True):
        nnz = len(layer["active"])
        sparsity = Fraction(layer["numel"] - nnz, layer["numel"])
        capped = min(Fraction(p), sparsity)
        if gate and not (sparsity < Fraction(1, 5) and mine * len(layers) > sum(q)):
            capped = Fraction(p)
        counts.append(max(0, min(ceil(capped * nnz - Fraction(1, 10**9)), nnz - 1)))
    return counts


def prune(layers, p, pruning, gate):
    """The sets of entries to remove."""
    if pruning == "global":
        return prune_globally(layers, p)
    if pruning == "set":
        return [by_sign(layer, p) for layer in layers]
    counts = removal_counts(layers, p, gate)
    return [
        lowest([abs(w) for w in layer["weight"]], r, layer["active"]) for layer, r in zip(layers, counts, strict=True)
    ]


def prune_globally(layers, p):
    total = sum(len(layer["active"]) for layer in layers)
    best = [highest([abs(w) for w in v["weight"]], 1, v["active"]) for v in layers]
    entries = [
        (abs(v["weight"][i]), k, i) for k, v in enumerate(layers) for i in sorted(v["active"]) if i not in best[k]
    ]
    gone = sorted(entries)[: ceil(Fraction(p) * total - Fraction(1, 10**9))]
    return [{i for _, place, i in gone if place == k} for k in range(len(layers))]


def by_sign(layer, p):
    gone = {i for i in layer["active"] if layer["weight"][i] == 0 and p > 0}
    for sign in (1, -1):
        side = [i for i in layer["active"] if layer["weight"][i] * sign > 0]
        gone |= lowest([abs(w) for w in layer["weight"]], floor(Fraction(p) * len(side) + Fraction(1, 10**9)), side)
    if gone == set(layer["active"]):
        gone -= highest([abs(w) for w in layer["weight"]], 1, layer["active"])
    return gone


def by_neuron(layer, count, free):
    """Split over output units by their mean |M|, then the largest |M| inside each unit."""
    width = layer["numel"] // layer["units"]
    rows = [range(u * width, (u + 1) * width) for u in range(layer["units"])]
    score = [abs(m) for m in layer["momentum"]]
    means = [sum(Fraction(score[i]) for i in row) / width for row in rows]
    room = [sum(i in free for i in row) for row in rows]
    even = [Fraction(1, len(rows))] * len(rows)
    parts = [m / sum(means) for m in means] if sum(means) else even
    counts = allocate([count * part for part in parts], room)
    return set().union(*(highest(score, n, [i for i in row if i in free]) for row, n in zip(rows, counts, strict=True)))


def grow(layers, free, counts, growth):
    if growth == "global":
        entries = [(-abs(v["momentum"][i]), k, i) for k, v in enumerate(layers) for i in sorted(free[k])]
        come = sorted(entries)[: sum(counts)]
        return [{i for _, place, i in come if place == k} for k in range(len(layers))]
    if growth == "momentum-neuron":
        return [by_neuron(v, n, f) for v, n, f in zip(layers, counts, free, strict=True)]
    choose = at_random if growth == "random" else by_momentum
    return [choose(v, n, f) for v, n, f in zip(layers, counts, free, strict=True)]


def by_momentum(layer, count, free):
    return highest([abs(m) for m in layer["momentum"]], count, free)


def at_random(layer, count, free):
    ranks = np.random.default_rng(layer["growth_seed"]).choice(len(free), count, replace=False, shuffle=False)
    return {sorted(free)[rank] for rank in ranks}


def update(layers, p, redistribution="momentum", growth="momentum", pruning="magnitude", reference=False):
    """One topology update. layers: dicts with weight, mask, momentum (flat lists). Returns masks, removed and grown sets."""
    for layer in layers:
        layer["numel"] = len(layer["mask"])
        layer["active"] = [i for i, present in enumerate(layer["mask"]) if present]
    gate = ("size" if redistribution == "none" else redistribution) if reference else None
    removed = prune(layers, p, pruning, gate)
    r = [len(gone) for gone in removed]
    free = [{i for i in range(v["numel"]) if not v["mask"][i]} | gone for v, gone in zip(layers, removed, strict=True)]
    if redistribution == "none" and not reference:
        g = r
    else:
        q = [share(layer, "size" if redistribution == "none" else redistribution) for layer in layers]
        if sum(q) == 0:
            q = [Fraction(x) for x in r]
        desired = [sum(r) * x / sum(q) for x in q] if sum(q) else [Fraction(0)] * len(q)
        g = allocate(desired, [len(f) for f in free])
    grown = grow(layers, free, g, growth)
    masks = [
        [(present and i not in gone) or i in come for i, present in enumerate(layer["mask"])]
        for layer, gone, come in zip(layers, removed, grown, strict=True)
    ]
    return masks, removed, grown
