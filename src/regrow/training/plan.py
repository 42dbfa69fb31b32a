"""The table of a configuration before training: the network that training would build, without fetching its data."""

from __future__ import annotations

from dataclasses import replace

import torch

from regrow import data
from regrow.api import sparsify
from regrow.config import Config
from regrow.methods import Method, build
from regrow.plan import Plan
from regrow.training.optimisation import build_optimizer
from regrow.training.setup import build_model, check_outputs


def plan_of(config: Config) -> Plan:
    """Layers, densities and MACs as the run would start; methods that score data are shown by static masks, and the title says so."""
    settings = config.data
    form = data.form_of(settings.name, root=settings.root or None, image_size=settings.image_size)
    network = build_model(config, form)
    check_outputs(config, network, form)
    method = build(config.sparse.method, dict(config.sparse.options))
    absent = _absent(method)
    example = torch.zeros(1, *form.shape)
    handle = sparsify(
        network,
        build_optimizer(network, config),
        "static" if absent else method,
        density=None if method.free_of_density else config.sparse.density,
        # The table shows the start: any run long enough for the method's schedule will do.
        steps=1000,
        update_every=1,
        scope=config.sparse.scope,
        distribution=config.sparse.distribution or None,
        seed=config.seed,
        costs=example if method.needs_costs or config.sparse.macs else None,
        macs=None if absent else config.sparse.macs or None,  # milliseconds are not known before the first step
        samples=1,  # of no consequence before the first step
        process_group=False,
    )
    plan = handle.plan(example)
    return replace(plan, method=f"{method.name} (static masks stand in: {absent})") if absent else plan


def _absent(method: Method) -> str:
    """Why the method's own masks cannot be shown; nothing where they can."""
    if method.rounds is not None:
        return "its own come from rounds of training"
    return "its own need data" if method.calibration else ""
