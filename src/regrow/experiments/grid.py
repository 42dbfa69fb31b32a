"""A grid of runs: every combination of values times seeds, each with a folder of its own."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from regrow import config as configuration
from regrow.config import Config
from regrow.errors import ConfigurationError
from regrow.experiments import duration
from regrow.training.density import settle_density


@dataclass(frozen=True)
class Job:
    """One run of a grid."""

    config: Config
    label: str = ""

    @property
    def key(self) -> str:
        """Name of its folder."""
        return self.config.folder_name()

    @property
    def work(self) -> float:
        """How long it takes, relative to other runs."""
        return duration.seconds(self.config)


def expand(base: Config, grid: Mapping[str, Sequence[str]], seeds: Sequence[int]) -> list[Job]:
    """All combinations of the grid's values, each with every seed.

    A method with a density of its own (``dense``) runs once, however many densities the grid has.

    Example:
        >>> jobs = expand(Config(), {"density": ["0.05", "0.1"]}, seeds=[0, 1])
        >>> [(j.config.sparse.density, j.config.seed) for j in jobs]
        [(0.05, 0), (0.05, 1), (0.1, 0), (0.1, 1)]
    """
    if not seeds:
        raise ConfigurationError("a grid needs at least one seed")
    jobs: dict[str, Job] = {}
    for values in itertools.product(*grid.values()):
        pairs = dict(zip(grid, values, strict=True))
        config = settle_density(configuration.override(base, pairs), given=False)
        shown = {key: _shown(key, value, config) for key, value in pairs.items()}
        label = " ".join(f"{key}={value}" for key, value in shown.items())
        for seed in seeds:
            job = Job(replace(config, seed=seed), label)
            jobs.setdefault(job.key, job)
    return list(jobs.values())


def _shown(key: str, value: str, config: Config) -> str:
    """A value of the grid, or the density that the method trains at whatever the grid says."""
    if configuration.resolve_key(key) != "sparse.density" or float(value) == config.sparse.density:
        return value
    return f"{config.sparse.density:g}"


def parse_grid(texts: Sequence[str]) -> dict[str, list[str]]:
    """``key=a,b,c`` arguments as a grid; values with commas of their own are written as lists, ``key=[1,2],[3,4]``."""
    grid: dict[str, list[str]] = {}
    names: dict[str, str] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        if not equals or not values:
            raise ConfigurationError(f"a grid argument reads key=value,value,..., got {text!r}")
        path = configuration.resolve_key(key)
        if path == "seed":
            raise ConfigurationError(f"seeds are not part of the grid: --seeds {values} in place of --grid {text}")
        if path in names:
            raise ConfigurationError(
                f"--grid has {key} twice{'' if names[path] == key else f' (as {names[path]})'}: give all its values at once, {key}=a,b,c"
            )
        names[path], grid[key] = key, _split(values)
    return grid


def parse_seeds(text: str) -> list[int]:
    """``0-9``, ``0,3,5`` or a count: ``5`` means seeds 0 to 4.

    Example:
        >>> parse_seeds("2"), parse_seeds("3-5"), parse_seeds("1,4")
        ([0, 1], [3, 4, 5], [1, 4])
    """
    try:
        if "," in text:
            seeds = [int(part) for part in text.split(",")]
        elif "-" in text:
            first, last = text.split("-")
            seeds = list(range(int(first), int(last) + 1))
        else:
            seeds = list(range(int(text)))
    except ValueError as error:
        raise ConfigurationError(f"seeds are a count (5), a range (0-9) or a list (0,3,5), got {text!r}") from error
    if not seeds:
        raise ConfigurationError(f"{text!r} names no seed: give a count of at least 1, or a range from low to high")
    return seeds


def _split(values: str) -> list[str]:
    parts, depth, current = [], 0, ""
    for character in values:
        depth += (character == "[") - (character == "]")
        if character == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += character
    return [*parts, current]
