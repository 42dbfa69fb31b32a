"""The density that a run is named after is the density it trains at."""

from __future__ import annotations

from dataclasses import replace

from regrow.config import Config
from regrow.errors import ConfigurationError
from regrow.methods import build


def settle_density(config: Config, given: bool) -> Config:
    """The density that the method trains at, where it is the method's own; another one, if ``given`` by the user, is an error."""
    sparse = config.sparse
    method = build(sparse.method, dict(sparse.options))
    own = 1.0 if method.outcome is not None and method.free_of_density else method.own_density
    if own is None or sparse.density == own:
        return config  # a saved configuration repeats it
    if given and method.outcome is not None:
        raise ConfigurationError(
            f"the density of method {sparse.method!r} is an outcome of its training: leave density out, or "
            + (method.outcome.remedy or "cut it to a budget with --option.budget exact --option.finetune_steps STEPS")
        )
    if given:
        raise ConfigurationError(
            f"method {sparse.method!r} trains at density {own:g}, not at {sparse.density:g}: leave density out, or choose another "
            "method (`regrow methods` lists them)"
        )
    return replace(config, sparse=replace(sparse, density=own))
