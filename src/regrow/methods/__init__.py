"""Every method, one paper per file, each a short composition of the same pieces."""

from regrow.methods import (
    deep_r,
    dense,
    dns,
    dsr,
    gradual,
    granet,
    grasp,
    han,
    itop,
    lottery,
    mest,
    movement,
    rigl,
    set_,
    snfs,
    snip,
    soft_deep_r,
    sparse_momentum,
    sr_ste,
    srigl,
    static,
    str_,
    synflow,
    top_kast,
)
from regrow.methods.method import METHODS, Method, Rounds, StepView, build, register

for _module in (
    sparse_momentum, set_, dsr, deep_r, soft_deep_r, snip, static, dense, rigl, snfs, itop, granet, mest, top_kast, srigl,
    grasp, synflow, gradual, han, lottery, sr_ste, movement, str_, dns,
):  # fmt: skip
    register(_module.method)

__all__ = ["METHODS", "Method", "Rounds", "StepView", "build", "register"]
