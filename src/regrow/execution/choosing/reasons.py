"""Why `auto` computes each layer as it does."""

from __future__ import annotations

from collections.abc import Mapping

from regrow.execution.choosing.auto import Auto, Decision
from regrow.execution.choosing.explanation import Choice, Explanation
from regrow.execution.choosing.measure import Cost


def explain(auto: Auto, densities: Mapping[str, float], unable: Mapping[str, str]) -> Explanation:
    """One row per layer, with the times the decision was made from."""
    decision = auto.decision
    costs = {} if decision is None else {cost.name: cost for cost in decision.costs if cost.kind == "layer"}
    rows = []
    for name, density in densities.items():
        sparse, cost = decision is not None and name in decision.sparse, costs.get(name)
        reason = unable.get(name) or _reason(decision, name, cost, auto.pending)
        figures = (None, None, None) if cost is None else (cost.ordinary, cost.chwn, cost.break_even)
        rows.append(Choice(name, density, "sparse" if sparse else "masked", reason, *figures))
    return Explanation(tuple(rows), "execution: auto", _note(decision, auto.pending))


def _reason(decision: Decision | None, name: str, cost: Cost | None, pending: bool) -> str:
    if decision is None:
        return "not measured yet: the first training step runs masked" if pending else "nothing to choose"
    if cost is None or cost.chwn is None or cost.break_even is None:
        return "was not used in the step that was measured" if decision.costs else decision.verdict
    faster, even = cost.chwn < cost.ordinary, f"break-even {cost.break_even:.1%}"
    if name in decision.sparse:
        return f"sparse is faster, {even}" if faster else f"saves converting layouts, {even}"
    if name in decision.planned and not decision.sparse:
        return f"{'sparse alone is faster, ' if faster else ''}the whole model is not faster with sparse layers, {even}"
    return f"sparse is faster, converting layouts is not, {even}" if faster else f"dense is faster, {even}"


def _note(decision: Decision | None, pending: bool) -> str:
    if decision is None:
        return ""
    again = "; to be decided again after the next step" if pending else ""
    return f"{decision.verdict}; measured in {decision.seconds:.1f} s on {decision.machine}{again}"
