"""Sparse momentum: prune small weights, redistribute and regrow by momentum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from regrow.defaults import GENTLE, LETTER
from regrow.errors import ConfigurationError, unknown
from regrow.methods import options
from regrow.methods.method import Method
from regrow.topology import score
from regrow.topology.grow import Grow
from regrow.topology.prune import Count, Prune, Pruning, Threshold, capped_fraction, gated_fraction
from regrow.topology.redistribute import SHARES, Redistribute, Share, mean_momentum, per_cost
from regrow.topology.released import Released
from regrow.topology.schedule import DECAYS, When
from regrow.topology.warmup import warm_up

GROWTH: dict[str, tuple[score.Score, Literal["layer", "neuron"]]] = {
    "momentum": (score.momentum, "layer"),
    "random": (score.random, "layer"),
    "gradient": (score.gradient, "layer"),
    "momentum-neuron": (score.momentum, "neuron"),
}

STATES: dict[str, Literal["zero", "seed", "normalised"]] = {"auto": "normalised", "keep": "seed", "zero": "zero"}


def method(
    prune_rate: float = 0.2,
    decay: str = "cosine",
    redistribution: str = "momentum",
    growth: str = "momentum",
    pruning: str = "magnitude",
    global_prune: bool = False,
    global_growth: bool = False,
    just_pruned: Literal["keep", "zero"] = "keep",
    grown_momentum: Literal["auto", "keep", "zero"] = "auto",
    warmup: float | None = None,
    cost_power: float = 0.0,
    reference: bool = False,
) -> Method:
    r"""Sparse networks from scratch (Dettmers & Zettlemoyer 2019), called SNFS in later papers.

    With momentum M, layers i, prune rate p(t) decaying to 0:

        q_i = mean(|M_i| over present weights)           c_i = q_i / sum_j q_j
        r_i = ceil(min(p, 1 - density_i) * nnz_i)        R = sum_i r_i
        prune the r_i smallest |W_i|; grow g_i ~ c_i R missing weights with the largest |M_i|, sum_i g_i = R

    What a full layer cannot take is shared equally among the others.

    Args:
        prune_rate: p at the start.
        decay: ``cosine`` or ``linear`` to 0, or ``constant``.
        redistribution: ``momentum``, ``magnitude``, ``nonzeros``, ``survivors``, ``size``, ``none``, or ``second-moment`` (Adam family).
        growth: ``momentum``, ``random``, ``gradient`` or ``momentum-neuron``.
        pruning: ``magnitude``, ``set`` (smallest of each sign), ``threshold`` (DSR's) or ``curvature`` (Adam family).
        global_prune, global_growth: choose over the whole network instead of per layer.
        just_pruned: a weight pruned and regrown at once keeps its value, or restarts at zero.
        grown_momentum: a weight grown by momentum starts with it (``keep``), so that its first step is large, or with none (``zero``);
            ``auto`` keeps Adam's, whose steps are normalised, and no others; with ``reference`` all.
        warmup: share of the interval between updates over which gradients of grown weights rise from nothing to whole; None is 0.5, with
            ``reference`` 0. The paper to the letter is ``grown_momentum="keep", warmup=0``: there the loss jumps after the first updates.
        cost_power: shares c_i / cost_i ** cost_power, with ``costs`` given to ``sparsify``.
        reference: behave as the authors' code where it differs from the paper. Growth and redistribution by momentum with pruning by
            magnitude follow `regrow.topology.released`, number of weights included, which drifts around the budget. Other settings keep an
            exact budget and take over: p ends at 0.005, the cap on p_i applies only to layers above 80% density that want to grow,
            ``redistribution="none"`` shares by layer size, grown weights keep their dense momentum.
    """
    options.within("prune_rate", prune_rate, 0, 1, open_high=True)
    options.one_of("just_pruned", just_pruned, ("keep", "zero"))
    options.one_of("grown_momentum", grown_momentum, ("auto", "keep", "zero"))
    start = LETTER if reference else GENTLE
    warmup = start["warmup"] if warmup is None else warmup
    options.within("warmup", warmup, 0, 1)
    options.one_of("growth", growth, GROWTH)
    options.one_of("decay", decay, DECAYS)
    if global_prune and pruning != "magnitude":
        raise ConfigurationError(
            f"global_prune chooses by magnitude over the whole network: pruning={pruning!r} has a rule of its own"
        )
    if global_growth and growth == "momentum-neuron":
        raise ConfigurationError(
            "global_growth chooses over the whole network, growth='momentum-neuron' inside units: take one"
        )
    chosen, spread = GROWTH[growth]
    kept = "keep" if reference and grown_momentum == "auto" else grown_momentum
    seeded = kept != "zero" and (growth.startswith("momentum") or reference)
    plain = growth == "momentum" and pruning == "magnitude" and not (global_prune or global_growth)
    released = reference and plain and redistribution == "momentum" and cost_power == 0
    return Method(
        name="sparse-momentum",
        paper="Dettmers & Zettlemoyer",
        year=2019,
        summary="prune small weights, redistribute and regrow by momentum",
        prune=_pruning(pruning, global_prune, gated_fraction(_gate(redistribution)) if reference else capped_fraction),
        redistribute=_redistribution(redistribution, cost_power, reference),
        grow=Grow(
            chosen,
            select="global" if global_growth else spread,
            just_pruned=just_pruned,
            state=STATES[kept] if seeded else "zero",
            warms_up=warmup > 0,
        ),
        rewire=Released(SHARES[redistribution]) if released else None,
        budget="free" if released else "constant",
        adjust=warm_up(warmup) if warmup else None,
        when=When("epoch"),
        rate=DECAYS[decay](prune_rate, 0.005 if reference and decay == "cosine" else 0.0),
        rate_needs_steps=decay != "constant",
        extra_needs=frozenset({"momentum"}) if seeded else frozenset(),
        needs_costs=cost_power != 0,
        extra_memory="1 dense tensor per layer in growth windows (2 for Adam)",
    )


def _pruning(pruning: str, everywhere: bool, count: Count) -> Pruning:
    kinds: dict[str, Callable[[], Pruning]] = {
        "magnitude": lambda: Prune(count=count, select="global" if everywhere else "layer"),
        "set": lambda: Prune(select="sign"),
        "threshold": Threshold,
        "curvature": lambda: Prune(score=score.magnitude_by_curvature, count=count),
    }
    if pruning not in kinds:
        raise unknown("pruning", pruning, kinds)
    return kinds[pruning]()


def _redistribution(name: str, cost_power: float, reference: bool) -> Redistribute | None:
    if name == "none":
        if cost_power:
            raise ConfigurationError(
                "cost_power weighs the shares of a redistribution, and redistribution='none' has none: take one of them out"
            )
        return Redistribute(SHARES["size"]) if reference else None
    if name not in SHARES:
        raise unknown("redistribution", name, [*SHARES, "none"])
    return Redistribute(per_cost(SHARES[name], cost_power))


def _gate(redistribution: str) -> Share:
    """The share that decides whether a layer wants to grow: that of the redistribution in use."""
    return SHARES["size"] if redistribution == "none" else SHARES.get(redistribution, mean_momentum)
