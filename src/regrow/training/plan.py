"""The table of a configuration before training, without its data."""

from __future__ import annotations

import torch

from regrow import models
from regrow.api import sparsify
from regrow.config import Config
from regrow.methods import build
from regrow.plan import Plan
from regrow.training.optimisation import build_optimizer
from regrow.training.setup import create_model


def plan_of(config: Config) -> Plan:
    """Layers, densities and MACs as the run would start; methods that score data are shown at their uniform budget."""
    info = models.info(config.model)
    network = create_model(config, config.model_options)
    method = build(config.sparse.method, dict(config.sparse.options))
    stands_in = "static" if method.calibration or method.rounds else method
    example = torch.zeros(1, *info.input_shape)
    handle = sparsify(
        network,
        build_optimizer(network, config),
        stands_in,
        density=None if method.fixed_counts is not None else config.sparse.density,
        # The table shows the start: any run long enough for the method's schedule will do.
        steps=1000,
        update_every=1,
        scope=config.sparse.scope,
        distribution=config.sparse.distribution or None,
        seed=config.seed,
        costs=example if method.needs_costs else None,  # of no consequence before the first topology update
        process_group=False,
    )
    return handle.plan(example)
