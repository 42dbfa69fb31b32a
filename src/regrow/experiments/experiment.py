"""What an experiment is: cells (a configuration and the paper's value) that are run with several seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from regrow.config import Config
from regrow.errors import ConfigurationError, unknown
from regrow.experiments.grid import Job
from regrow.experiments.targets import Target

# The momentum sweep of the sensitivity experiment: errors count from that at the anchor; its test and figure leave the diverging one out,
# as the paper does.
ANCHOR_MOMENTUM = 0.9
DIVERGING_MOMENTUM = 0.99


@dataclass(frozen=True)
class Cell:
    """One row of a table: a setting, run with several seeds, and what the paper reports for it."""

    model: str
    label: str
    density: float
    config: Config
    target: Target | None = None

    @property
    def shown(self) -> str:
        """The label beside others of its model, which then need not name it."""
        return self.label.removesuffix(f" ({self.model})")

    @property
    def is_dense(self) -> bool:
        """Whether it is the dense network."""
        return self.config.sparse.method == "dense"

    def jobs(self, seeds: Sequence[int]) -> list[Job]:
        """One run per seed."""
        return [Job(replace(self.config, seed=seed), self.label) for seed in seeds]


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper as a command.

    ``compares(cell, other)`` says that the analysis of one cell is nothing without the other.
    """

    name: str
    shows: str
    seeds: int
    cells: Callable[[], list[Cell]]
    figure: str = "curve"
    stops_when_equal: bool = False
    compares: Callable[[Cell, Cell], bool] = lambda cell, other: False

    def chosen(
        self,
        model: str | None = None,
        densities: Sequence[float] | None = None,
        epochs: int | None = None,
        settings: Sequence[str] | None = None,
    ) -> list[Cell]:
        """The cells, narrowed to a model, settings and densities (shares, as everywhere), with another number of epochs if asked.

        What the analysis compares them with stays, whatever settings and densities.
        """
        cells = self.cells()
        if model is not None:
            models = sorted({cell.model for cell in cells})
            if model not in models:
                raise unknown("model", model, models, of=self.name)
            cells = [cell for cell in cells if cell.model == model]
        wanted = self._at(densities, self._labelled(settings, cells))
        cells = [cell for cell in cells if cell in wanted or any(self.compares(chosen, cell) for chosen in wanted)]
        if epochs is not None:
            cells = [replace(cell, config=replace(cell.config, epochs=epochs)) for cell in cells]
        return cells

    def _labelled(self, settings: Sequence[str] | None, cells: list[Cell]) -> list[Cell]:
        """The cells whose label begins with one of the settings."""
        if settings is None:
            return cells
        for setting in settings:
            if not any(cell.label.startswith(setting) for cell in cells):
                raise unknown("setting", setting, dict.fromkeys(cell.label for cell in cells), of=self.name)
        return [cell for cell in cells if cell.label.startswith(tuple(settings))]

    def _at(self, densities: Sequence[float] | None, cells: list[Cell]) -> list[Cell]:
        if densities is None:
            return cells
        known = sorted({cell.density for cell in cells})
        for density in densities:
            if not any(abs(density - k) < 1e-9 for k in known):
                raise ConfigurationError(
                    f"{self.name} has no density {density:g}; it has {', '.join(f'{k:g}' for k in known)}"
                )
        return [cell for cell in cells if any(abs(cell.density - d) < 1e-9 for d in densities)]


def against_dense(cell: Cell, other: Cell) -> bool:
    """Every cell with the dense network."""
    return other.is_dense and other.model == cell.model


def against_anchor(cell: Cell, other: Cell) -> bool:
    """Each momentum, sparse and dense, with the anchor; prune rates with nothing."""
    swept = all(split_label(c.label)[0] == "momentum" for c in (cell, other))
    momenta = cell.config.optimizer.momentum, ANCHOR_MOMENTUM
    return swept and other.model == cell.model and other.config.optimizer.momentum in momenta


def split_label(label: str) -> tuple[str, float, str]:
    """Parameter, value and series of a label of the sensitivity experiment.

    Example:
        >>> split_label("prune rate 0.2 cosine")
        ('prune rate', 0.2, 'cosine')
    """
    *words, value, series = label.split()
    return " ".join(words), float(value), series
