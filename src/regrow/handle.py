"""The handle: what ``sparsify`` returns. It holds the parts of a sparse run and passes on what users ask of them.

backward            -> gradient masked as it arrives; in a growth window the unmasked one is kept beside it: ``parameter``
clip, unscale, ...  -> the user's business: only present weights are in sight
optimizer.step()    -> before and after the optimizer's own update: ``stepping``
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from regrow import attach
from regrow.copying import adopt, copy_handle, mask_copy
from regrow.errors import StateError
from regrow.execution.choosing.explanation import Explanation
from regrow.execution.switch import Switch
from regrow.guard import refuse_misfit
from regrow.memory import Memory, memory_of
from regrow.methods.fitness import refuse_execution
from regrow.methods.method import Method
from regrow.network import SparseNetwork
from regrow.parameter import SparseParameter
from regrow.plan import Plan, build_plan, draw
from regrow.ranks import Ranks
from regrow.rounds import end_round, remember_rewind
from regrow.scope import Decision, Layer, unwrap
from regrow.settings import Settings
from regrow.shipping.freeze import Frozen, freeze
from regrow.start import take_zeros
from regrow.state import export_state, fixed_density, import_state, refuse_lost, watch_first_pass
from regrow.stepping import Stepping
from regrow.support import Support
from regrow.topology.journal import Journal
from regrow.topology.view import Source
from regrow.weights import TrainedWeights
from regrow.window import GrowthWindow


class Handle:
    """A sparsified model: masks, schedule, journal. Returned by :func:`regrow.sparsify`."""

    def __init__(
        self,
        model: nn.Module | Callable[[], tuple[nn.Module, list[nn.Module]]],
        optimizer: Optimizer,
        layers: list[Layer],
        decisions: list[Decision],
        settings: Settings,
        ranks: Ranks,
        supports: Mapping[str, Support] | None = None,
    ) -> None:
        self.decisions, self.settings = decisions, settings
        self.network = SparseNetwork(optimizer, layers, settings, ranks, supports)
        self.window = GrowthWindow(self.network)
        self.switch = Switch(self.network, lambda: self.window.fraction(self.step))
        self.step, self.round = 0, 0
        self.trained = self.network.trained = TrainedWeights(self.network, lambda: self.step, self.check)
        self.network.data = self._source
        self.rewind_weights: dict[str, Tensor] = {}
        self.unverified = False
        self.saved_nonzeros: dict[str, int] = {}
        self.inherited_execution: dict[str, Any] | None = None
        self._stepping = Stepping(self)
        self.hooks = attach.attach(self, optimizer)
        self._find_model: Callable[[], tuple[nn.Module, list[nn.Module]]] | None = None
        if isinstance(model, nn.Module):
            self._adopt(unwrap(model), [layer.module for layer in layers])
        else:
            self._find_model = model

    def _adopt(self, model: nn.Module, modules: list[nn.Module]) -> None:
        self._model, self._find_model = model, None
        adopt(self, modules)

    def _source(self) -> Source:
        return Source(self.model, self.network.layers, self.network.calibration, self.network.ranks.average)

    def initialise(self, calibration: Any = None) -> None:
        """Draw the first masks and mask the weights."""
        self.switch.claim(self.model)
        remember_rewind(self)
        self.network.initialise(self.model, calibration)
        self._stepping.look_ahead()

    # ---------------------------------------------------------------------------------------------- looking

    @property
    def parameters(self) -> list[SparseParameter]:
        """The sparse parameters with their masks and hooks."""
        return self.network.parameters

    @property
    def model(self) -> nn.Module:
        """The model without wrappers; a deep copy looks for its own when first asked."""
        if self._find_model is not None:
            self._adopt(*self._find_model())
        return self._model

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer the handle rides on."""
        return self.parameters[0].optimizer

    @property
    def method(self) -> Method:
        """The method in use."""
        return self.settings.method

    @property
    def masks(self) -> dict[str, Tensor]:
        """The mask of each layer by name. Read only: a topology update makes new ones."""
        return {layer.name: self.network.mask(layer) for layer in self.network.layers}

    @property
    def journal(self) -> Journal:
        """What each topology update did."""
        return self.network.journal

    @property
    def updates(self) -> int:
        """Number of topology updates done."""
        return self.network.updates

    @property
    def nonzeros(self) -> int:
        """Number of present weights."""
        return sum(sparse.support.nnz for sparse in self.parameters)

    @property
    def numel(self) -> int:
        """Number of positions in all sparse layers."""
        return sum(sparse.shape.numel() for sparse in self.parameters)

    @property
    def density(self) -> float:
        """Share of weights present in the sparse layers."""
        return self.nonzeros / self.numel

    @density.setter
    def density(self, density: float) -> NoReturn:
        raise fixed_density(density)

    @property
    def budget(self) -> int:
        """Number of weights that the method's budget rule prescribes, or allows at most."""
        return sum(self.network.counts)

    @property
    def prune_rate(self) -> float:
        """The prune rate at this step."""
        return self.method.rate(self.settings.progress(self.step))

    @property
    def finished(self) -> bool:
        """Whether :meth:`finish` took off what the method trained beside the weights."""
        return self.method.ends and self.trained.weighting is None

    @property
    def penalty(self) -> float | None:
        """The method's own term of the loss at the last step; None where it has none."""
        return self.trained.penalty

    @property
    def needs_missing_gradients(self) -> bool:
        """Whether the next backward must deliver gradients of missing weights: known before each step."""
        return self.window.is_open

    def plan(self, example: Tensor | tuple[Any, ...] | None = None) -> Plan:
        """The table of layers: sparse or dense and why, density, non-zeros, measured costs; MACs where ``example`` (one input) is given."""
        return build_plan(self.model, self.method.name, self.decisions, self.network, example)

    def memory(self, example: Tensor | tuple[Any, ...] | None = None) -> Memory:
        """The table of bytes: weights, gradients, optimizer state, lists of the kernels and masks per layer, beside dense training.

        With an ``example`` batch one forward and backward pass is made, of which nothing remains: kernels then have their lists, and the
        activations that it keeps are measured.
        """
        return memory_of(self, example)

    def execute(self, execution: str, native_step: bool = True) -> None:
        """Choose how sparse layers are computed from now on.

        ``masked`` (dense compute), ``sparse`` (native kernels) or ``auto``: the faster, measured after the next training step. In mostly
        empty layers on sparse kernels SGD and AdamW touch present weights only, unless ``native_step`` is off.
        """
        refuse_execution(self.method.name, self.trained.weighting, execution)
        self.switch.native_step = native_step
        self.switch.choose(execution, self.model)
        self.switch.follow(self.window.is_open)

    def densify(self) -> None:
        """Compute as an ordinary dense model again; masks stay in force."""
        self.execute("masked")

    def explain(self) -> Explanation:
        """How each layer is computed, and why: rows, and a table when printed."""
        return self.switch.explain()

    plot = draw

    # ---------------------------------------------------------------------------------------------- stepping

    def check(self) -> None:
        """Refuse to step without a model, or if the weights were replaced by some that do not fit the masks."""
        attach.refuse_replaced(self.model, self.parameters)
        if not self.unverified:
            return
        refuse_misfit(self.parameters)
        refuse_lost(self)
        for sparse in self.parameters:
            sparse.mask_state()
            sparse.mark_clean()  # so that a resumed run steps natively at once, as the uninterrupted one does
        self.unverified, self.saved_nonzeros = False, {}

    def distrust(self) -> None:
        """Weights or optimizer state were loaded: look at them before the next step."""
        self.unverified = True

    def before_step(self) -> None:
        """When the gradients are ready, before the optimizer uses them."""
        self._stepping.before()

    def after_step(self) -> None:
        """After the optimizer's update: mask, count, and update the topology if due."""
        self._stepping.after()

    def finish(self) -> None:
        """End the method: what it trained beside the weights goes, and a plain model with fixed masks is left, trainable as any other.

        Outputs stay those of evaluation before. Methods that train nothing but weights and masks have nothing to end.
        """
        if self.method.ends and not self.finished:
            self.trained.finish()

    def freeze(self, example: Tensor | None = None) -> Frozen:
        """End the method and give the network for inference alone, without optimizer, hooks or handle: :func:`regrow.freeze`."""
        self.finish()
        return freeze(self.model, {sparse.name: sparse.mask for sparse in self.parameters}, example)

    # ---------------------------------------------------------------------------------------------- rounds

    @torch.no_grad()
    def rewind(self) -> bool:
        """End a round of train-prune-retrain: prune to the next density and, for lottery tickets, put all weights back.

        Optimizer state is cleared and the step counter restarts. Returns False, changing nothing, once the target is reached.
        """
        if not end_round(self):
            return False
        self.window.forget_schedule()
        self._stepping.look_ahead()
        return True

    # ---------------------------------------------------------------------------------------------- state

    def state_dict(self) -> dict[str, Any]:
        """Everything that matters to the sparse run: tensors and plain numbers only, no pickled objects."""
        return export_state(self)

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state. It is checked against this model and method before anything changes."""
        _ = self.optimizer  # whether it is still there
        import_state(self, state)
        self.distrust()
        if self._find_model is None:  # a copy looks at what it copied when it finds its model
            watch_first_pass(self)
        self.window.forget_schedule()
        self._stepping.look_ahead()

    @torch.no_grad()
    def masks_from_zeros(self) -> None:
        """Take masks and budget from the zeros of the weights as they are; a schedule of densities goes on from there."""
        take_zeros(self.network)
        self.unverified, self.saved_nonzeros = False, {}

    @torch.no_grad()
    def mask_(self, copied: nn.Module) -> nn.Module:
        """Mask a copy of the model in place: the average over time of sparse weights is not sparse by itself."""
        return mask_copy(self, copied)

    def detach(self) -> None:
        """Remove every hook: the model stays as it is and trains as an ordinary one from now on."""
        for hook in self.hooks:
            hook.remove()
        for sparse in self.parameters:
            sparse.detach()
        self.trained.detach()
        if self.network.prices is not None:
            self.network.prices.stop()
        attach.release(self, self.optimizer)
        self.switch.release()

    def __deepcopy__(self, memo: dict[int, Any]) -> Handle:
        """Copy model, optimizer and handle together; the copies belong to each other."""
        return copy_handle(self, memo)

    def __reduce__(self) -> NoReturn:
        """Hooks, functions and a foreign optimizer do not pickle."""
        raise StateError(
            "a handle can be neither pickled nor copied alone: save handle.state_dict() with those of model and optimizer"
        )

    def __repr__(self) -> str:
        """One line."""
        return (
            f"Handle({self.method.name}, {self.nonzeros:,} of {self.numel:,} weights, step {self.step}, "
            f"{self.updates} topology updates)"
        )
