"""Where the memory of training goes: bytes per layer, beside those of the dense layer.

weights, gradients   of the parameters, as they are stored; shadow weights and side parameters of a method
optimizer            its state of each parameter
lists                what kernels keep of a mask: native plans (as the library counts them), positions, bits
masks                what says which weights exist: a mask, or rows and columns in compact storage
history              the first mask and the ever-present one, what a method remembers
evidence             gradients of missing weights, collected in growth windows
activations          what a forward pass keeps for its backward pass, measured with an example batch

What does not exist yet (gradients and optimizer state before the first step) is predicted, and named as such.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.optim import Optimizer

from regrow.candidates import window_bytes
from regrow.execution.kernels.pattern import Plans
from regrow.execution.modules.layers import execution_of
from regrow.passing import saved_bytes
from regrow.side import slots_of
from regrow.support import Support
from regrow.text import as_html, as_text

if TYPE_CHECKING:
    from regrow.handle import Handle
    from regrow.network import SparseNetwork
    from regrow.parameter import SparseParameter
    from regrow.scope import Layer

VECTORS = "vectors"
_APART = (nn.Module, Plans, Support)
"""Looked into by themselves: a stack of layers, say, knows the supports of all of them."""
_HEADS = {"gradients": "grads", "optimizer": "state"}
_UNITS = ("kB", "MB", "GB", "TB")


@dataclass(frozen=True)
class LayerMemory:
    """Bytes of one parameter; ``dense`` is weight, gradient and optimizer state of the dense layer."""

    layer: str
    shape: tuple[int, ...]
    sparse: bool
    present: int
    weights: int
    gradients: int
    optimizer: int
    lists: int
    masks: int
    history: int
    evidence: int
    dense: int

    @property
    def total(self) -> int:
        """All of them."""
        return sum(getattr(self, part) for part in PARTS)


PARTS = ("weights", "gradients", "optimizer", "lists", "masks", "history", "evidence")


@dataclass(frozen=True)
class Memory:
    """The rows, and a table when printed.

    Attributes:
        rows: one for each matrix, one for all vectors.
        activations: None where no example was given.
        predicted: parts not made yet.
        window: bytes of momentum of missing weights in the next growth window, where none is open.
    """

    rows: tuple[LayerMemory, ...]
    activations: int | None = None
    predicted: tuple[str, ...] = ()
    window: int = 0

    def __iter__(self) -> Iterator[LayerMemory]:
        """The rows in the order of the model; vectors (biases, norms) have the last one together."""
        return iter(self.rows)

    def sum(self, part: str) -> int:
        """Bytes over all rows of one of ``PARTS``, or of ``dense`` or ``total``."""
        return sum(getattr(row, part) for row in self.rows)

    @property
    def total(self) -> int:
        """All bytes, activations included where they were measured."""
        return self.sum("total") + (self.activations or 0)

    @property
    def dense(self) -> int:
        """Bytes of dense training: weights, gradients, optimizer state."""
        return self.sum("dense")

    def as_dict(self) -> dict[str, Any]:
        """Plain data for files."""
        sums = {part: self.sum(part) for part in (*PARTS, "total", "dense")}
        rows = [{**asdict(row), "shape": list(row.shape)} for row in self.rows]
        return {
            "rows": rows,
            **sums,
            "activations": self.activations,
            "predicted": list(self.predicted),
            "window": self.window,
        }

    def __rich__(self) -> Any:
        """The table for a terminal or notebook."""
        from rich import box
        from rich.markup import escape
        from rich.table import Table

        share = f"{self.sum('total') / max(1, self.dense):.1%}"
        table = Table(
            title=f"{readable(self.sum('total'))} for weights and what is trained with them, {share} of dense training",
            caption="\n".join(self.notes()),
            caption_justify="left",
            box=box.SIMPLE_HEAD,
            padding=(0, 1, 0, 0),
            pad_edge=False,
            show_edge=False,
        )
        shown = [*(part for part in PARTS if part != "evidence" or self.sum(part)), "total", "dense"]
        table.add_column("layer", overflow="fold", min_width=10)
        for column in (*shown, "ratio"):
            table.add_column(_HEADS.get(column, column), justify="right", no_wrap=True)
        for row in self.rows:
            cells = (readable(getattr(row, part)) for part in shown)
            table.add_row(escape(row.layer), *cells, f"{row.total / max(1, row.dense):.1%}")
        sums = (readable(self.sum(part)) for part in shown)
        table.add_row("sum", *sums, share)
        return table

    def notes(self) -> list[str]:
        """What stands below the table."""
        notes = [
            "dense: weights, gradients and optimizer state of the same layers without masks; state: the optimizer's"
        ]
        if self.activations is not None:
            notes.append(f"activations kept for the backward pass of the example: {readable(self.activations)}")
        if self.window:
            notes.append(f"momentum of missing weights in the next growth window: {readable(self.window)} besides")
        if self.predicted:
            notes.append(f"predicted, as there were none yet: {', '.join(self.predicted)}")
        return notes

    def __str__(self) -> str:
        """The table as plain text."""
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self.__rich__())


def readable(count: int) -> str:
    """Bytes for tables.

    Example:
        >>> readable(0), readable(999), readable(15_300), readable(2_400_000)
        ('0', '999 B', '15.3 kB', '2.4 MB')
    """
    if count < 1000:
        return f"{count} B" if count else "0"
    power = min(len(_UNITS), (len(str(count)) - 1) // 3)
    size = count / 1000**power
    return f"{size:.1f} {_UNITS[power - 1]}" if size < 100 else f"{size:,.0f} {_UNITS[power - 1]}"


def memory_of(handle: Handle, example: Tensor | tuple[Any, ...] | None = None) -> Memory:
    """What ``handle.memory`` shows; with an example batch a forward and a backward pass make what kernels keep, and are measured."""
    return account(handle.model, handle.optimizer, handle.network, example, handle.step)


def account(
    model: nn.Module,
    optimizer: Optimizer,
    network: SparseNetwork | None = None,
    example: Tensor | tuple[Any, ...] | None = None,
    step: int = 0,
) -> Memory:
    """The bytes of a model in training; without a ``network`` of sparse layers all of it is dense."""
    activations = None if example is None else _activations(model, network, example)
    owners = {} if network is None else {sparse.parameter: sparse for sparse in network.parameters}
    ledger = _Ledger(optimizer, slots_of(optimizer), network)
    rows: list[LayerMemory] = []
    vectors: list[LayerMemory] = []
    for name, parameter in model.named_parameters():
        row = ledger.row(name.removesuffix(".weight"), parameter, owners.get(parameter))
        (vectors if not row.sparse and len(row.shape) < 2 else rows).append(row)
    window = 0 if network is None or any(row.evidence for row in rows) else window_bytes(network, step)
    return Memory((*rows, *_merged(vectors)), activations, tuple(ledger.predicted), window)


def _activations(model: nn.Module, network: SparseNetwork | None, example: Tensor | tuple[Any, ...]) -> int:
    """Bytes that a pass keeps; gradient buffers are afterwards as before, else each would be there twice while gradients are held."""
    modules = [] if network is None else [layer.module for layer in network.layers]
    buffers = [execution.buffer for module in modules if (execution := execution_of(module)) is not None]
    before = [dict(vars(buffer)) for buffer in buffers]
    try:
        return saved_bytes(model, example)
    finally:
        for buffer, kept in zip(buffers, before, strict=True):
            vars(buffer).update(kept)


class _Ledger:
    """Bytes of tensors, each storage once; a part that does not exist yet is noted as ``predicted``."""

    def __init__(self, optimizer: Optimizer, slots: int, network: SparseNetwork | None) -> None:
        self.optimizer, self.slots, self.network = optimizer, slots, network
        self.predicted: dict[str, None] = {}
        self._seen: set[int] = set()

    def row(self, name: str, parameter: nn.Parameter, sparse: SparseParameter | None) -> LayerMemory:
        """One parameter."""
        shape = parameter.shape if sparse is None else sparse.support.shape
        layers = self._layers(sparse)
        weights, trained = self.count(parameter), parameter.requires_grad
        executions = filter(None, (execution_of(layer.module) for _, layer in layers))
        lent = [tensor for execution in executions for tensor in _own(execution.buffer)]  # outlives the gradients
        gradients = self._or("gradients", self.count(parameter.grad, *lent), weights if trained else 0)
        state = self.optimizer.state.get(parameter, {})
        optimizer = self._or("optimizer", self.count(state), self.slots * weights if trained else 0)
        lists, masks, history = (0, 0, 0) if sparse is None else self._marks(sparse, layers)
        weights += 0 if sparse is None else self.count(sparse.theta, *self._side(layers))
        evidence = 0 if sparse is None else self._evidence(sparse)
        dense = shape.numel() * parameter.element_size() * (2 + self.slots if trained else 1)
        present = shape.numel() if sparse is None else sparse.support.nnz
        parts = (weights, gradients, optimizer, lists, masks, history, evidence)
        return LayerMemory(name, tuple(shape), sparse is not None, present, *parts, dense)

    def _layers(self, sparse: SparseParameter | None) -> list[tuple[int, Layer]]:
        """The layers that a parameter is split into, with their places."""
        layers = [] if self.network is None or sparse is None else list(enumerate(self.network.layers))
        return [(index, layer) for index, layer in layers if sparse and layer.parameter is sparse.parameter]

    def _or(self, part: str, found: int, expected: int) -> int:
        if not found and expected:
            self.predicted[part] = None
        return found or expected

    def _marks(self, sparse: SparseParameter, layers: list[tuple[int, Layer]]) -> tuple[int, int, int]:
        """Bytes of the kernels' lists, of masks, and of what was before them."""
        network = self.network
        assert network is not None, "a sparse parameter belongs to a network"
        supports = [sparse.support, *([] if sparse.reach is None else [sparse.reach])]
        masks = sum(self.count(*_own(support)) for support in supports)
        lists = sum(self._derived(support) for support in supports)
        kept = ((network.start_masks[i], network.ever_masks[i], network.layer_memory[i]) for i, _ in layers)
        history = self.count(*kept)
        for execution in filter(None, (execution_of(layer.module) for _, layer in layers)):
            lists += self.count(execution.pattern.kept)
        return lists, masks, history

    def _evidence(self, sparse: SparseParameter) -> int:
        """What a growth window keeps; of one with candidates where they are, too."""
        reach = sparse.moments.reach
        where = 0 if reach is None or reach is sparse.support else self.count(*_own(reach)) + self._derived(reach)
        return where + self.count(sparse.incoming, sparse.moments)

    def _side(self, layers: list[tuple[int, Layer]]) -> list[object]:
        """What a method trains beside the weights of these layers."""
        trained = None if self.network is None else self.network.trained
        side = None if trained is None else trained.side
        return [] if side is None else [side.layers[index] for index, _ in layers]

    def _derived(self, support: Support) -> int:
        """What was computed from a support and is kept with it."""
        kept = [value for part in vars(support).values() if isinstance(part, dict) for value in part.values()]
        return self.count(*kept) + sum(value.nbytes for value in kept if isinstance(value, Plans))

    def count(self, *things: object) -> int:
        """Bytes of the tensors in these that were not counted before."""
        total = 0
        for tensor in _tensors(things, set()):
            storage = tensor.untyped_storage()
            if tensor.device.type != "meta" and storage.data_ptr() not in self._seen:
                self._seen.add(storage.data_ptr())
                total += storage.nbytes()
        return total


def _tensors(thing: object, seen: set[int]) -> Iterator[Tensor]:
    """Tensors held by containers and by objects of this library."""
    if isinstance(thing, Tensor):
        yield thing
        return
    if id(thing) in seen:
        return
    seen.add(id(thing))
    inner: Iterable[object] = ()
    if isinstance(thing, Mapping):
        inner = thing.values()
    elif isinstance(thing, (list, tuple, set, frozenset)):
        inner = thing
    elif type(thing).__module__.startswith("regrow.") and not isinstance(thing, _APART):
        inner = getattr(thing, "__dict__", {}).values()
    for part in inner:
        yield from _tensors(part, seen)


def _own(thing: object) -> list[object]:
    return [value for value in vars(thing).values() if isinstance(value, Tensor)]


def _merged(rows: list[LayerMemory]) -> list[LayerMemory]:
    if not rows:
        return []
    numbers = [field.name for field in fields(LayerMemory) if field.type == "int"]
    sums = {name: sum(getattr(row, name) for row in rows) for name in numbers}
    return [LayerMemory(layer=f"{len(rows)} {VECTORS}", shape=(), sparse=False, **sums)]
