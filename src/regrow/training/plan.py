"""The plan and the memory of a configuration before training: the network that training would build, without fetching its data."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch.optim import Optimizer

from regrow import data
from regrow.api import sparsify
from regrow.arguments import arguments_of
from regrow.config import Config
from regrow.handle import Handle
from regrow.memory import Memory
from regrow.methods import Method, build
from regrow.plan import Plan
from regrow.training.optimisation import build_optimizer
from regrow.training.setup import build_model, check_outputs


def plan_of(config: Config) -> Plan:
    """Layers, densities and MACs as the run would start; methods that score data are shown by static masks, and the title says so."""
    method = _method(config)
    handle, _, shape = _begun(config, "masked")
    plan, absent = handle.plan(torch.zeros(1, *shape)), _absent(method)
    return replace(plan, method=f"{method.name} (static masks stand in: {absent})") if absent else plan


def memory_of(config: Config) -> Memory:
    """Bytes of a training step, computed as configured, on an empty batch of the configured size."""
    handle, _, shape = _begun(config, config.sparse.execution)
    return handle.memory(torch.zeros(config.data.batch, *shape))


def _begun(config: Config, execution: str) -> tuple[Handle, Optimizer, tuple[int, ...]]:
    """The handle as the run would start, the optimizer that it rides on, and the shape of an input."""
    settings = config.data
    form = data.form_of(settings.name, root=settings.root or None, image_size=settings.image_size)
    network = build_model(config, form)
    check_outputs(config, network, form)
    method, optimizer = _method(config), build_optimizer(network, config)
    absent = _absent(method)
    example = torch.zeros(1, *form.shape)
    handle = sparsify(
        network,
        optimizer,
        "static" if absent else method,
        **{
            **arguments_of(config.sparse),
            "density": None if method.free_of_density else config.sparse.density,
            # The table shows the start: any run long enough for the method's schedule will do.
            "steps": 1000,
            "update_every": 1,
            "seed": config.seed,
            "execution": execution,
            "storage": "dense" if execution == "masked" else config.sparse.storage,
            "start": None,  # weights are not read
            "costs": example if method.needs_costs or config.sparse.macs else None,
            "macs": None if absent else config.sparse.macs or None,
            "milliseconds": None,  # not known before the first step
            "samples": 1,  # of no consequence before the first step
            "process_group": False,
        },
    )
    return handle, optimizer, tuple(form.shape)


def _method(config: Config) -> Method:
    return build(config.sparse.method, dict(config.sparse.options))


def _absent(method: Method) -> str:
    """Why the method's own masks cannot be shown; nothing where they can."""
    if method.rounds is not None:
        return "its own come from rounds of training"
    return "its own need data" if method.calibration else ""
