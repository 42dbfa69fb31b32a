"""Why `auto` computes each layer as it does."""

from __future__ import annotations

from collections.abc import Mapping

from regrow.execution.choosing.auto import Auto, Verdict
from regrow.execution.choosing.explanation import Choice, Explanation
from regrow.execution.choosing.measure import ModuleTimes


def explain(auto: Auto, densities: Mapping[str, float], unable: Mapping[str, str]) -> Explanation:
    """One row per layer, with the times that the verdict was made from."""
    verdict = auto.verdict
    timings = {} if verdict is None else {timing.name: timing for timing in verdict.times if timing.kind == "layer"}
    rows = []
    for name, density in densities.items():
        sparse, timing = verdict is not None and name in verdict.sparse, timings.get(name)
        reason = unable.get(name) or _reason(verdict, name, timing, auto.pending)
        figures = (None, None, None) if timing is None else (timing.ordinary, timing.chwn, timing.break_even)
        rows.append(Choice(name, density, "sparse" if sparse else "masked", reason, *figures))
    return Explanation(tuple(rows), "execution: auto", _note(verdict, auto.pending))


def _reason(verdict: Verdict | None, name: str, times: ModuleTimes | None, pending: bool) -> str:
    if verdict is None:
        return "not measured yet: the first training step runs masked" if pending else "nothing to choose"
    if times is None or times.chwn is None or times.break_even is None:
        return "was not used in the step that was measured" if verdict.times else verdict.reason
    faster = times.chwn < times.ordinary
    even = f"break-even {times.break_even:.1%}" if times.break_even > 0 else "no break-even"
    if name in verdict.sparse:
        return f"sparse is faster, {even}" if faster else f"saves converting layouts, {even}"
    if name in verdict.predicted and not verdict.sparse:
        return f"{'sparse alone is faster, ' if faster else ''}the whole model is not faster with sparse layers, {even}"
    return f"sparse is faster, converting layouts is not, {even}" if faster else f"dense is faster, {even}"


def _note(verdict: Verdict | None, pending: bool) -> str:
    if verdict is None:
        return ""
    again = "; to be decided again after the next step" if pending else ""
    return f"{verdict.reason}; measured in {verdict.seconds:.1f} s on {verdict.machine}{again}"
