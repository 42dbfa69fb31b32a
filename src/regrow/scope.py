"""Which parameters are sparse.

Weights of linear, convolutional, recurrent, attention and bilinear layers are; biases, norms, embeddings and positional tables are not,
unless asked for. A layer here is one weight matrix or kernel tensor; q, k and v of an attention's joint projection count as three.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.nn.parameter import is_lazy

from regrow.errors import ConfigurationError, UnsupportedError, unknown

Rule = str | type[nn.Module]

_WEIGHTED = (nn.Linear, _ConvNd, nn.Bilinear)
_RECURRENT = (nn.RNNBase, nn.RNNCellBase)
_EMBEDDING = (nn.Embedding, nn.EmbeddingBag)
_POSITIONS = ("@first", "@last", "@shortcut")
_SHORTCUT_NAMES = ("*shortcut*", "*downsample*", "*skip*")


_TIED = "tied to embedding"
VECTOR = "bias or norm"
"""The reason of parameters with fewer than two dimensions, which stay dense unless asked for."""


@dataclass(frozen=True)
class Scope:
    """Rules that choose layers by module type, by name pattern (``"features.*"``) or by position.

    Positions are ``"@first"``, ``"@last"`` (in the order of registration) and ``"@shortcut"`` (1x1 convolutions named *shortcut*,
    *downsample* or *skip*). ``dense`` takes layers out, ``include`` brings in what is dense by default, such as embeddings.

    Example:
        >>> Scope(dense=("@first", "head.*"), include=(torch.nn.Embedding,)).dense
        ('@first', 'head.*')
    """

    dense: tuple[Rule, ...] = ()
    include: tuple[Rule, ...] = ()

    def __post_init__(self) -> None:
        """A single rule may come without its tuple."""
        for name in ("dense", "include"):
            rules = getattr(self, name)
            object.__setattr__(self, name, (rules,) if isinstance(rules, (str, type)) else tuple(rules))


SCOPES: dict[str, Scope] = {
    "fully-sparse": Scope(),
    "partially-dense": Scope(dense=("@first", "@shortcut")),
    "partially-dense-cifar": Scope(dense=("@first", "@shortcut", "@last")),
}


@dataclass(frozen=True, eq=False)
class Layer:
    """One sparse layer: a parameter, or a band of its rows."""

    name: str
    parameter_name: str
    parameter: nn.Parameter
    module: nn.Module
    rows: slice | None = None
    output_dim: int = 0
    size: torch.Size | None = None

    @property
    def shape(self) -> torch.Size:
        """Shape of the layer's weight, whatever its parameter holds of it."""
        return self.band(self.parameter).shape if self.size is None else self.size

    def band(self, tensor: Tensor) -> Tensor:
        """The layer's own part of a tensor that is shaped like the whole parameter: a view."""
        return tensor if self.rows is None else tensor[self.rows]


@dataclass(frozen=True)
class Decision:
    """Why a parameter is sparse or dense."""

    name: str
    kind: str
    shape: tuple[int, ...]
    sparse: bool
    reason: str


@dataclass(eq=False)
class _Candidate:
    name: str
    parameter: nn.Parameter
    module: nn.Module
    kind: str
    default: str | None
    within: list[nn.Module] = field(default_factory=list)  # the modules that own it, and those around them

    @property
    def layer_name(self) -> str:
        return self.name.removesuffix(".weight")


def choose(
    model: nn.Module, scope: str | Scope | Sequence[Rule] = "fully-sparse"
) -> tuple[list[Layer], list[Decision]]:
    """Split a model's parameters into sparse layers and dense ones, with the reason for each."""
    rules = resolve(scope)
    _check_ready(model)
    candidates = _candidates(unwrap(model))
    _check_patterns(rules, candidates)
    positions = _positions(candidates)
    layers: list[Layer] = []
    decisions: list[Decision] = []
    for candidate in candidates:
        reason = _dense_reason(candidate, rules, positions)
        if reason is None:
            _check_supported(candidate)
            layers.extend(_layers(candidate))
        why = "in scope" if reason is None else reason
        shape = tuple(shape_of(candidate.module, candidate.parameter))
        decisions.append(Decision(candidate.layer_name, candidate.kind, shape, reason is None, why))
    if not layers:
        raise ConfigurationError(
            f"{type(model).__name__} has no layer to make sparse in this scope{_remedy(decisions)}; its parameters: "
            + ", ".join(f"{d.name} ({d.reason})" for d in decisions[:8])
        )
    return layers, decisions


def _remedy(decisions: Sequence[Decision]) -> str:
    tied = next((d for d in decisions if d.reason.startswith(_TIED)), None)
    return (
        ""
        if tied is None
        else f" (to include the matrix that head and embedding share: scope=Scope(include=('{tied.name}',)))"
    )


def uncovered(decisions: Sequence[Decision]) -> Decision | None:
    """The largest matrix left dense by default where these hold more than half of the model's matrix weights; None where they do not.

    What rules keep dense, what is frozen, and embeddings are not counted: they are meant.
    """
    matrices = [d for d in decisions if len(d.shape) > 1]
    unasked = [d for d in matrices if not d.sparse and d.reason.startswith("parameter of")]
    inside = sum(math.prod(d.shape) for d in matrices if d.sparse)
    outside = sum(math.prod(d.shape) for d in unasked)
    return max(unasked, key=lambda d: math.prod(d.shape)) if outside > inside else None


def resolve(scope: str | Scope | Sequence[Rule]) -> Scope:
    """A scope by name, as given, or from rules for what stays dense: a sequence, or a string as a command line has it.

    Example:
        >>> resolve("dense:@last,stem.*").dense
        ('@last', 'stem.*')
    """
    if isinstance(scope, Scope):
        return scope
    if not isinstance(scope, str):
        return Scope(dense=scope)  # type: ignore[arg-type]  # which makes the tuple, of a single rule too
    kind, _, rules = scope.partition(":")
    if kind == "dense" and rules:
        return Scope(dense=tuple(rule.strip() for rule in rules.split(",")))
    if scope not in SCOPES:
        raise unknown("scope", scope, [*SCOPES, "dense:RULE,RULE,..."])
    return SCOPES[scope]


def unwrap(model: nn.Module) -> nn.Module:
    """The model inside ``DistributedDataParallel`` and ``torch.compile`` wrappers."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(model, (nn.parallel.DistributedDataParallel, nn.DataParallel)):
            inner = model.module
        if inner is None:
            return model
        model = inner


def _candidates(model: nn.Module) -> list[_Candidate]:
    seen: dict[nn.Parameter, _Candidate] = {}
    modules = dict(model.named_modules(remove_duplicate=False))

    def around(path: str) -> list[nn.Module]:
        parts = path.split(".") if path else []
        return [modules[".".join(parts[:depth])] for depth in range(len(parts), -1, -1)]

    for prefix, module in model.named_modules():
        for own, parameter in module._parameters.items():
            if parameter is None:
                continue
            name = f"{prefix}.{own}" if prefix else own
            if parameter not in seen:
                seen[parameter] = _Candidate(
                    name, parameter, module, type(module).__name__, _default(module, own, parameter)
                )
            elif isinstance(module, _EMBEDDING):
                seen[parameter].default = f"{_TIED} {name}"
            elif isinstance(seen[parameter].module, _EMBEDDING) and isinstance(module, _WEIGHTED):
                seen[parameter].default = f"{_TIED} {seen[parameter].layer_name}"
            seen[parameter].within += around(prefix)
    return list(seen.values())


def _default(module: nn.Module, own: str, parameter: nn.Parameter) -> str | None:
    """Why a parameter is dense by default; None if it is sparse."""
    if isinstance(module, _EMBEDDING):
        return "embedding: dense unless asked for"
    if (isinstance(module, _WEIGHTED) or is_inputs_first(module)) and own == "weight":
        return None
    if isinstance(module, _RECURRENT) and own.startswith("weight"):
        return None
    if isinstance(module, nn.MultiheadAttention) and own.endswith("proj_weight"):
        return None
    return VECTOR if parameter.ndim < 2 else f"parameter of {type(module).__name__}: dense unless asked for"


def _positions(candidates: Sequence[_Candidate]) -> dict[str, set[str]]:
    ordered = [c for c in candidates if c.default is None]
    shortcuts = {c.name for c in ordered if _is_shortcut(c)}
    main = [c for c in ordered if c.name not in shortcuts]
    return {
        "@first": {main[0].name} if main else set(),
        "@last": {main[-1].name} if main else set(),
        "@shortcut": shortcuts,
    }


def _is_shortcut(candidate: _Candidate) -> bool:
    return isinstance(candidate.module, _ConvNd) and is_shortcut(candidate.name, candidate.parameter.shape)


def is_shortcut(name: str, shape: Sequence[int]) -> bool:
    """Whether a convolution of this name and weight shape projects a shortcut: 1x1, and named like one.

    Example:
        >>> is_shortcut("layer1.downsample.0", (64, 32, 1, 1)), is_shortcut("layer1.conv1", (64, 32, 1, 1))
        (True, False)
    """
    named = any(fnmatchcase(name.lower(), pattern) for pattern in _SHORTCUT_NAMES)
    return named and len(shape) > 2 and all(size == 1 for size in shape[2:])


def _dense_reason(candidate: _Candidate, scope: Scope, positions: dict[str, set[str]]) -> str | None:
    if not candidate.parameter.requires_grad:
        return "frozen"
    for rule in scope.dense:
        if _matches(rule, candidate, positions):
            return f"kept dense by rule {_rule_name(rule)}"
    if candidate.default is not None and not any(_includes(rule, candidate, positions) for rule in scope.include):
        return candidate.default
    return None


def _includes(rule: Rule, candidate: _Candidate, positions: dict[str, set[str]]) -> bool:
    """A class brings in its matrices; biases and norms only come by name."""
    return _matches(rule, candidate, positions) and (isinstance(rule, str) or candidate.default != VECTOR)


def _matches(rule: Rule, candidate: _Candidate, positions: dict[str, set[str]]) -> bool:
    if not isinstance(rule, str):
        return any(isinstance(module, rule) for module in candidate.within)
    if rule in positions:
        return candidate.name in positions[rule]
    return fnmatchcase(candidate.name, rule) or fnmatchcase(candidate.layer_name, rule)


def _rule_name(rule: Rule) -> str:
    return rule if isinstance(rule, str) else rule.__name__


def _check_patterns(scope: Scope, candidates: Sequence[_Candidate]) -> None:
    names = [c.layer_name for c in candidates]
    for rule in (*scope.dense, *scope.include):
        if not isinstance(rule, str):
            if not (isinstance(rule, type) and issubclass(rule, nn.Module)):
                raise ConfigurationError(
                    f"a scope rule is a name pattern, a position such as '@first' or a module class, got {rule!r}"
                )
            if not any(_matches(rule, c, {}) for c in candidates):
                kinds = ", ".join(sorted({c.kind for c in candidates}))
                raise ConfigurationError(
                    f"the scope names {rule.__name__}, but the model has none with weights; it has {kinds}"
                )
            continue
        if rule.startswith("@"):
            if rule not in _POSITIONS:
                raise unknown("position", rule, _POSITIONS)
        elif not any(_matches(rule, c, {}) for c in candidates):
            raise unknown("layer pattern", rule, [*names, *_POSITIONS])


def _check_ready(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if is_lazy(parameter):
            raise UnsupportedError(f"{name} is not initialised yet: run one batch through the model before sparsify")
    for name, module in model.named_modules():
        if type(module).__name__ == "FullyShardedDataParallel":
            where = f"module {name}" if name else "the model"
            raise UnsupportedError(
                f"{where} is sharded (FSDP), which is not supported yet: use DistributedDataParallel"
            )


def _check_supported(candidate: _Candidate) -> None:
    parameter = candidate.parameter
    if type(parameter.data).__name__ == "DTensor" or type(parameter).__name__ == "FlatParameter":
        raise UnsupportedError(
            f"{candidate.name} is sharded (FSDP/DTensor), which is not supported yet: use DistributedDataParallel"
        )
    if not parameter.is_floating_point():
        raise UnsupportedError(
            f"{candidate.name} has dtype {parameter.dtype}: only floating-point weights can be sparse"
        )
    if getattr(candidate.module, "sparse", False) is True:
        raise UnsupportedError(f"{candidate.name} belongs to an embedding with sparse=True gradients: set sparse=False")


def _layers(candidate: _Candidate) -> Iterator[Layer]:
    transposed = isinstance(candidate.module, _ConvTransposeNd) or is_inputs_first(candidate.module)
    base = (candidate.parameter, candidate.module)
    if isinstance(candidate.module, nn.MultiheadAttention) and candidate.name.endswith("in_proj_weight"):
        width = candidate.parameter.shape[0] // 3
        for k, part in enumerate("qkv"):
            yield Layer(f"{candidate.name}[{part}]", candidate.name, *base, rows=slice(k * width, (k + 1) * width))
    else:
        size = shape_of(candidate.module, candidate.parameter)
        yield Layer(candidate.layer_name, candidate.name, *base, output_dim=1 if transposed else 0, size=size)


def inputs_first(kind: type) -> type | None:
    """Hugging Face's `Conv1D` (GPT-2) among a class and its bases: a linear layer with a weight [inputs, outputs].

    Its package need not be there.
    """
    known = ("transformers.pytorch_utils", "Conv1D")
    return next((base for base in kind.__mro__ if (base.__module__, base.__qualname__) == known), None)


def shape_of(module: nn.Module, parameter: nn.Parameter) -> torch.Size:
    """The shape of a weight, also of one that holds present entries only."""
    execution = module.__dict__.get("_regrow_execution")
    if execution is None or parameter is not module._parameters.get("weight"):
        return parameter.shape
    return execution.pattern.shape


def is_inputs_first(module: nn.Module) -> bool:
    """Whether this is such a layer."""
    return inputs_first(type(module)) is not None


def is_linear(module: nn.Module) -> bool:
    """Whether a module multiplies its last dimension by a matrix, with outputs or inputs first."""
    return isinstance(module, nn.Linear) or is_inputs_first(module)


def parameters_of(layers: Iterable[Layer]) -> dict[str, nn.Parameter]:
    """The distinct parameters behind layers, by name."""
    return {layer.parameter_name: layer.parameter for layer in layers}
