"""The arguments of ``sparsify`` that a configuration can give, listed once.

A new one is a field of :class:`Sparse` beside its place in the signature of :func:`regrow.sparsify`. Section ``[sparse]`` of a file,
flags of the command line, checks of values, calls from configurations, hints for misplaced options and the columns of result tables
follow from it. Nothing here imports torch.
"""

from __future__ import annotations

from dataclasses import Field, dataclass, field, fields
from typing import Any

from regrow.ranges import ALLOWANCE, BELOW_ONE, CANDIDATES, DENSITY, NOT_NEGATIVE, POSITIVE, Range

EXECUTIONS = ("masked", "sparse", "auto")
MOMENTUM_SOURCES = ("optimizer", "gradient")
STORAGES = ("dense", "compact")
"""How weights, gradients and optimizer state may be stored."""
STARTS = ("random", "magnitude", "zeros")


@dataclass(frozen=True)
class Argument:
    """One argument of ``sparsify``, beside its key and default in a configuration.

    Attributes:
        name: in ``sparsify``, where it is not the key.
        within: which numbers it may be.
        choices: which words it may be.
        optional: whether 0 or "" means that it is left out.
        settled: whether the run itself settles its value, so that it is not passed on as it is.
        trains: whether it decides what is trained, not only how that is computed.
    """

    name: str = ""
    within: Range | None = None
    choices: tuple[str, ...] = ()
    optional: bool = False
    settled: bool = False
    trains: bool = True


def argument(default: Any, **about: Any) -> Any:
    """A field that is an argument of ``sparsify``."""
    return field(default=default, metadata={Argument: Argument(**about)})


@dataclass(frozen=True)
class Sparse:
    """The sparse part: the arguments of ``regrow.sparsify``. ``update_every = 0`` means the method's own, usually an epoch.

    ``start`` says which weights exist at first: ``random``, ``magnitude``, ``zeros``, or ``""`` for the method's own rule.
    ``costs`` says what a weight costs where the method asks (``options.cost_power``): multiply-accumulates, or measured time. ``macs``
    and ``milliseconds`` are budgets in compute, shares of the dense layers'; 0 means none.
    """

    method: str = "sparse-momentum"
    density: float = argument(0.05, within=DENSITY, settled=True)
    scope: str = argument("fully-sparse")
    distribution: str = argument("", optional=True)
    update_every: int = argument(0, within=NOT_NEGATIVE, optional=True)
    window_tolerance: float = argument(0.1, within=BELOW_ONE)
    window_stride: int = argument(1, within=POSITIVE)
    window_candidates: float = argument(0.0, within=CANDIDATES)
    momentum_source: str = argument("optimizer", name="momentum", choices=MOMENTUM_SOURCES)
    execution: str = argument("masked", choices=EXECUTIONS, trains=False)
    native_step: bool = argument(True, trains=False)
    storage: str = argument("dense", choices=STORAGES, trains=False)
    costs: str = argument("macs", choices=("macs", "measured"), settled=True)
    start: str = argument("", choices=("", *STARTS), optional=True)
    macs: float = argument(0.0, within=ALLOWANCE, optional=True)
    milliseconds: float = argument(0.0, within=ALLOWANCE, optional=True)
    options: dict[str, Any] = field(default_factory=dict)


_ELSEWHERE = {"steps": "epochs", "seed": "seed"}
"""Arguments that follow from keys at the top of a configuration."""


def about(item: Field[Any]) -> Argument | None:
    """What a field of a configuration says of an argument; None where it is none."""
    return item.metadata.get(Argument)


def arguments_of(section: Sparse) -> dict[str, Any]:
    """What a configuration passes to ``sparsify`` as it is.

    Example:
        >>> arguments_of(Sparse(update_every=50))["update_every"], arguments_of(Sparse())["update_every"]
        (50, None)
    """
    found = {}
    for item in fields(section):
        known = about(item)
        if known is not None and not known.settled:
            value = getattr(section, item.name)
            found[known.name or item.name] = (value or None) if known.optional else value
    return found


def ways_to_say(section: type[Sparse] = Sparse) -> dict[str, str]:
    """How to give each argument in a configuration, by its name in ``sparsify``.

    Example:
        >>> ways_to_say()["momentum"]
        '--momentum-source, or momentum_source in section [sparse]'
    """
    keys = {(known.name or item.name): item.name for item in fields(section) if (known := about(item)) is not None}
    ways = {name: f"--{key.replace('_', '-')}, or {key} in section [sparse]" for name, key in keys.items()}
    return ways | {name: f"--{key}, or {key} at the top of the file" for name, key in _ELSEWHERE.items()}


def without_effect(section: Sparse) -> set[str]:
    """Keys that decide how a network is computed, not what is trained."""
    return {item.name for item in fields(section) if (known := about(item)) is not None and not known.trains}
