"""Whole topology updates against the independent oracle, masks bit for bit; invariants over random sequences."""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from regrow.methods import build
from tests.support.examples import SHARES, TOTAL, examples
from tests.support.networks import KINDS, as_update, cases, flat, random_layers
from tests.support.oracle import update as oracle_update

VARIANTS = [
    {"redistribution": "magnitude"},
    {"redistribution": "nonzeros"},
    {"redistribution": "none"},
    {"growth": "random"},
    {"growth": "momentum-neuron"},
    {"pruning": "set"},
    {"global_prune": True},
    {"global_growth": True},
    {"global_prune": True, "global_growth": True},
    {"reference": True, "redistribution": "none"},
    {"reference": True, "redistribution": "magnitude"},
    {"redistribution": "nonzeros", "growth": "random", "pruning": "set"},
]


def expected(layers, rate, options):
    plain = {k: v for k, v in options.items() if not k.startswith("global")}
    if options.get("global_prune"):
        plain["pruning"] = "global"
    if options.get("global_growth"):
        plain["growth"] = "global"
    return oracle_update(layers, rate, **plain)


def compare(case, options):
    seed, kind, rate = case
    layers = random_layers(seed, kind)
    change = build("sparse-momentum", options).update(as_update(layers, rate, seed))
    masks, removed, grown = expected(layers, rate, options)
    assert flat(change.masks) == masks
    assert [set(m.view(-1).nonzero().view(-1).tolist()) for m in change.removed] == removed
    assert [set(m.view(-1).nonzero().view(-1).tolist()) for m in change.grown] == grown


@examples("whole updates against the oracle")
@given(cases())
def test_updates_agree_with_the_oracle(case):
    compare(case, {})


@examples("variants against the oracle")
@example(
    (769, "nearly dense", 0.2), {"reference": True, "redistribution": "magnitude"}
)  # an average share, but for rounding
@given(cases(), st.sampled_from(VARIANTS))
def test_every_variant_agrees_with_the_oracle(case, options):
    compare(case, options)


def follow(method, seed, kind, rates, **rest):
    """Several updates in a row; weights and momentum are drawn anew between them."""
    layers = random_layers(seed, kind)
    sizes, total = [len(v["mask"]) for v in layers], sum(sum(v["mask"]) for v in layers)
    for number, rate in enumerate(rates):
        source = torch.Generator().manual_seed(seed % 2**31 + number)
        for layer in layers:
            noise = torch.randint(-40, 41, (2, len(layer["mask"])), generator=source) / 8
            layer["weight"] = [w if m else 0.0 for w, m in zip(noise[0].tolist(), layer["mask"], strict=True)]
            if kind != "dead":
                layer["momentum"] = noise[1].tolist()
        update = as_update(layers, rate, seed, **rest)
        change = method.update(update)
        yield sizes, total, update, change
        for layer, mask in zip(layers, change.masks, strict=True):
            layer["mask"] = mask.view(-1).tolist()


@examples("sequences of updates")
@given(
    st.integers(0, 2**32),
    st.sampled_from(KINDS),
    st.lists(st.sampled_from([0.0, 0.1, 0.3, 0.7]), min_size=1, max_size=4),
    st.sampled_from([{}, *VARIANTS]),
)
def test_the_total_is_constant_and_no_layer_is_empty_over_any_sequence(seed, kind, rates, options):
    for sizes, total, update, change in follow(build("sparse-momentum", options), seed, kind, rates):
        counts = [int(m.count_nonzero()) for m in change.masks]
        assert sum(counts) == total
        assert all(1 <= n <= size for n, size in zip(counts, sizes, strict=True))
        for view, mask, gone, come in zip(update.layers, change.masks, change.removed, change.grown, strict=True):
            assert not bool((gone & ~view.mask).any())
            assert not bool((come & view.mask & ~gone).any())
            masked = view.weight * mask
            assert torch.equal(masked * mask, masked)


CONSTANT = ["set", "rigl", "snfs-erk", "itop", "dsr", "top-kast"]


@examples("other methods' updates")
@given(
    st.integers(0, 2**32),
    st.sampled_from(KINDS),
    st.lists(st.sampled_from([0.0, 0.1, 0.5]), min_size=1, max_size=3),
    st.sampled_from([*CONSTANT, "srigl", "granet"]),
)
def test_other_methods_keep_their_budget_over_any_sequence(seed, kind, rates, name):
    targets = [sum(v["mask"]) for v in random_layers(seed, kind)]
    rest = {"targets": targets} if name in ("srigl", "granet") else {}
    for sizes, total, _, change in follow(build(name, {}), seed, kind, rates, **rest):
        counts = [int(m.count_nonzero()) for m in change.masks]
        assert sum(counts) == total if name != "srigl" else sum(counts) <= total
        assert all(1 <= n <= size for n, size in zip(counts, sizes, strict=True))


def test_the_shares_add_up():
    assert sum(SHARES.values()) == 10_000
    assert TOTAL > 0


@pytest.mark.parametrize("kind", KINDS)
def test_random_networks_are_what_their_kind_says(kind):
    layers = [layer for seed in range(40) for layer in random_layers(seed, kind)]
    if kind == "dead":
        assert not any(any(layer["momentum"]) for layer in layers)
    if kind == "ties":
        assert {abs(w) for layer in layers for w in layer["weight"]} <= {0, 0.125}
    assert all(any(layer["mask"]) for layer in layers)
