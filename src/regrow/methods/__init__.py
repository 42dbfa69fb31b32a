"""Every method, one paper per file, each a short composition of the same pieces."""

from regrow.methods import (
    bayesian_compression,
    deep_r,
    dense,
    dns,
    dsr,
    gradual,
    granet,
    grasp,
    han,
    itop,
    l0,
    l_obs,
    lc,
    lottery,
    mest,
    movement,
    nest,
    obd,
    rigl,
    set_,
    snfs,
    snip,
    soft_deep_r,
    soft_weight_sharing,
    sparse_momentum,
    sr_ste,
    srigl,
    static,
    str_,
    synflow,
    targeted_dropout,
    top_kast,
    variational_dropout,
)
from regrow.methods.method import METHODS, Method, Rounds, StepView, build, register

for _module in (
    sparse_momentum, set_, dsr, deep_r, soft_deep_r, snip, static, dense, rigl, snfs, itop, granet, mest, top_kast, srigl,
    grasp, synflow, gradual, han, lottery, sr_ste, movement, str_, l_obs, dns, l0,
    variational_dropout, lc, obd, targeted_dropout, soft_weight_sharing, bayesian_compression, nest,
):  # fmt: skip
    register(_module.method)

__all__ = ["METHODS", "Method", "Rounds", "StepView", "build", "register"]
