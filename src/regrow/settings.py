"""Everything that decides a sparse run besides the model and the data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from regrow.methods.method import Method
from regrow.topology.schedule import Clock

DEFAULT_STRIDE = 1
"""Every how many steps of a growth window gradients of missing weights are computed."""


@dataclass(frozen=True)
class Settings:
    """The arguments of :func:`regrow.sparsify`, resolved."""

    method: Method
    density: float
    distribution: str | Callable[..., list[float]] | Mapping[str, float]
    clock: Clock | None
    seed: int
    window_tolerance: float
    window_stride: int
    pure_gradient: bool
    options: dict[str, Any] = field(default_factory=dict)
    start: Literal["random", "magnitude", "zeros"] | None = None
    samples: int | None = None
    macs: float | None = None
    milliseconds: float | None = None
    storage: Literal["dense", "compact"] = "dense"
    window_candidates: float = 0.0

    @property
    def steps(self) -> int | None:
        """Optimizer steps of the whole run, where the method has a schedule and the user said."""
        return self.clock.steps if self.clock else None

    @property
    def compute(self) -> float | None:
        """The budget in compute: a share of that of the dense layers, counted or measured; None where only weights count."""
        return self.macs if self.milliseconds is None else self.milliseconds

    @property
    def compute_name(self) -> str:
        """The argument that gave the budget in compute."""
        return "macs" if self.milliseconds is None else "milliseconds"

    def progress(self, step: int) -> float:
        """Share of the run done; 0 where masks are fixed or the length is unknown."""
        return self.clock.progress(step) if self.clock else 0.0

    def density_at(self, progress: float) -> float:
        """The density the method's schedule prescribes; the target density where it has none."""
        if self.method.outcome is not None:
            return 1.0  # until the method has learnt which weights to keep
        schedule = self.method.density
        return schedule(self.density)(progress) if schedule else self.density

    @property
    def density_moves(self) -> bool:
        """Whether the budget follows a curve over the run, instead of staying what it was at the start."""
        return self.method.density is not None and any(
            self.density_at(progress) != self.density for progress in (0.0, 0.5, 1.0)
        )
