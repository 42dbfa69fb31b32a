"""The density that a run is named after is the density it trains at."""

from __future__ import annotations

from dataclasses import replace

from regrow.config import Config
from regrow.errors import ConfigurationError
from regrow.methods import build


def settle_density(config: Config, given: bool) -> Config:
    """The density that the method trains at, where it is the method's own; another one, if ``given`` by the user, is an error."""
    sparse = config.sparse
    own = build(sparse.method, dict(sparse.options)).own_density
    if own is None or sparse.density == own:
        return config
    if given:
        raise ConfigurationError(
            f"method {sparse.method!r} trains at density {own:g}, not at {sparse.density:g}: leave density out, or choose another "
            "method (`regrow methods` lists them)"
        )
    return replace(config, sparse=replace(sparse, density=own))
