"""Neural networks that are sparse from the first training step to the last.

optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
sparse = regrow.sparsify(model, optimizer, density=0.05, steps=epochs * len(loader), update_every=len(loader))
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from regrow.amx import keep_off_traps

if TYPE_CHECKING:
    from regrow.api import list_methods, sparsify
    from regrow.attach import handle_of
    from regrow.handle import Handle
    from regrow.methods import Method, register
    from regrow.scope import Scope
    from regrow.shipping.freeze import freeze
    from regrow.shipping.loading import load, save
    from regrow.topology.grow import Grow
    from regrow.topology.prune import Prune
    from regrow.topology.redistribute import Redistribute
    from regrow.topology.schedule import When
    from regrow.topology.view import LayerView, needs

__version__ = "0.1.0"

_HOME = {
    "sparsify": "api",
    "list_methods": "api",
    "handle_of": "attach",
    "Handle": "handle",
    "Method": "methods",
    "register": "methods",
    "Scope": "scope",
    "freeze": "shipping.freeze",
    "load": "shipping.loading",
    "save": "shipping.loading",
    "Grow": "topology.grow",
    "Prune": "topology.prune",
    "Redistribute": "topology.redistribute",
    "When": "topology.schedule",
    "LayerView": "topology.view",
    "needs": "topology.view",
    "per_weight": "topology.score",
    "compact_form": "execution.modules.compact",
}

__all__ = [
    "Grow",
    "Handle",
    "LayerView",
    "Method",
    "Prune",
    "Redistribute",
    "Scope",
    "When",
    "compact_form",
    "freeze",
    "handle_of",
    "list_methods",
    "load",
    "needs",
    "per_weight",
    "register",
    "save",
    "sparsify",
]


# At import what is known already; the child process that finds out waits until something of regrow is used.
keep_off_traps(probe=False)


def __getattr__(name: str) -> Any:
    """Import a public name on first use: ``import regrow`` alone must not pay for torch."""
    if name == "testing":
        return import_module("regrow.testing")
    if name not in _HOME:
        raise AttributeError(f"module 'regrow' has no attribute {name!r}")
    keep_off_traps()
    return getattr(import_module(f"regrow.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
