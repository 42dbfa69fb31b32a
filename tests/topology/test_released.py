"""The authors' released update against a small simulation of its own: lists of numbers, one position at a time."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regrow.methods import build
from tests.support.examples import examples
from tests.support.networks import KINDS, as_update, random_layers


class Simulation:
    """Masks as lists, updated by the released rules; ties of scores go to the lowest position."""

    def __init__(self, masks):
        self.masks = [list(map(bool, mask)) for mask in masks]
        self.budget = sum(map(sum, self.masks))
        self.correction, self.differences = 0.0, []

    def update(self, weights, momenta, rate):
        means = []
        for mask, momentum in zip(self.masks, momenta, strict=True):
            present = [abs(value) for value, there in zip(momentum, mask, strict=True) if there]
            means.append(math.fsum(present) / len(present))
        shares = [mean / sum(means) if sum(means) else 0.0 for mean in means]
        before = [sum(mask) for mask in self.masks]
        removed_by_rule = []
        for i, (mask, weight) in enumerate(zip(self.masks, weights, strict=True)):
            zeros = len(mask) - before[i]
            own = rate
            if zeros / len(mask) < 0.2 and shares[i] > 1 / len(shares):
                own = min(own, zeros / len(mask))
            count = math.ceil(own * before[i])
            removed_by_rule.append(count)
            order = sorted(range(len(mask)), key=lambda k, w=weight: abs(w[k]))
            gone = set(order[: zeros + count]) if count else {k for k, w in enumerate(weight) if w == 0}
            left = [there and k not in gone for k, there in enumerate(mask)]
            if not any(left):  # regrow never empties a layer
                left[min((k for k, there in enumerate(mask) if there), key=lambda k, w=weight: (-abs(w[k]), k))] = True
            self.masks[i] = left
        removed = [b - sum(mask) for b, mask in zip(before, self.masks, strict=True)]
        self._grow(
            shares,
            momenta,
            sum(removed),
            [len(m) - b + r for m, b, r in zip(self.masks, before, removed_by_rule, strict=True)],
        )

    def _grow(self, shares, momenta, removed, room):
        amounts = [math.ceil(share * (removed + self.correction)) for share in shares]
        extra = 0.0
        for _ in range(1000):
            over = 0.0
            for i, most in enumerate(room):
                amount = amounts[i] + extra
                if amount > 0.99 * most:
                    over += amount - 0.99 * most
                    amount = 0.99 * most
                amounts[i] = amount
            extra = over / len(room)
            if over <= 0:
                break
        for mask, momentum, amount in zip(self.masks, momenta, amounts, strict=True):
            scores = [0.0 if there else abs(value) for value, there in zip(momentum, mask, strict=True)]
            for k in sorted(range(len(mask)), key=lambda k, s=scores: -s[k])[: max(0, math.floor(amount))]:
                mask[k] = True
        difference = self.budget - sum(map(sum, self.masks))
        self.differences.append(difference)
        mean = sum(self.differences) / len(self.differences)
        self.correction = 0.25 * self.correction + 0.75 * difference + mean


@examples("sequences of updates")
@given(
    st.integers(0, 2**32),
    st.sampled_from(KINDS),
    st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.5]), min_size=5, max_size=5),
)
def test_five_updates_in_a_row_are_those_of_the_simulation(seed, kind, rates):
    method = build("sparse-momentum", {"reference": True})
    layers, memory = random_layers(seed, kind), {}
    simulation = Simulation([layer["mask"] for layer in layers])
    for number, rate in enumerate(rates):
        source = torch.Generator().manual_seed(seed % 2**31 + number)
        for layer, mask in zip(layers, simulation.masks, strict=True):
            # Eighths: many ties, and present weights that are exactly zero.
            noise = torch.randint(-12, 13, (2, len(mask)), generator=source) / 8
            layer["mask"] = list(mask)
            layer["weight"] = [w if there else 0.0 for w, there in zip(noise[0].tolist(), mask, strict=True)]
            layer["momentum"] = [0.0] * len(mask) if kind == "dead" else noise[1].tolist()
        update = as_update(layers, rate, seed)
        update.memory = memory
        change = method.update(update)
        simulation.update([layer["weight"] for layer in layers], [layer["momentum"] for layer in layers], rate)
        assert [mask.view(-1).tolist() for mask in change.masks] == simulation.masks
        assert memory["correction"] == pytest.approx(simulation.correction)


def test_zeros_leave_the_cap_is_99_percent_and_the_total_drifts():
    layers = [
        {
            "shape": (10, 10),
            "mask": [1] * 4 + [0] * 96,
            "weight": [0.0, 1.0, 2.0, 3.0] + [0.0] * 96,
            "momentum": [31.0] * 100,
        },
        {
            "shape": (20, 20),
            "mask": [1] * 252 + [0] * 148,
            "weight": [1.0] * 252 + [0.0] * 148,
            "momentum": [1.0] * 400,
        },
    ]
    change = build("sparse-momentum", {"reference": True}).update(as_update(layers, 0.5, 0))
    assert change.removed[0].view(-1)[:4].tolist() == [True, True, False, False]
    # Of 2 + 126 removed, 31/32 and 1/32: 124 pass 97.02, the other layer gets 4 + 26.98. Both are rounded down.
    assert int(change.masks[0].count_nonzero()) == 2 + math.floor(0.99 * (96 + 2))
    assert sum(int(mask.count_nonzero()) for mask in change.masks) == 256 - 1
