"""The sparse layers of one model: masks, what criteria see of them, and the journal. The only writer of a mask."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from regrow import randomness
from regrow.allowance import Allowance
from regrow.compact import hold
from regrow.extras import act
from regrow.guard import check_budget, check_finite, check_first
from regrow.marks import Marks, count_of
from regrow.moving import located, move_entries, move_values, set_values
from regrow.parameter import SparseParameter, momentum_scales
from regrow.ranks import Ranks
from regrow.scope import Layer, parameters_of
from regrow.settings import Settings
from regrow.start import first_masks
from regrow.support import Support
from regrow.topology import distribution as distributions
from regrow.topology.bands import CompactView
from regrow.topology.cycle import Change
from regrow.topology.initial import Setup
from regrow.topology.journal import Journal, Record, coded, coded_count, decoded, layer_record
from regrow.topology.redistribute import momentum_shares
from regrow.topology.view import LayerView, Source, Update
from regrow.vectors import changing

if TYPE_CHECKING:
    from regrow.execution.choosing.prices import Prices
    from regrow.weights import TrainedWeights


class SparseNetwork:
    """Masks and their history. ``supports`` are of parameters that hold present weights only, from the first.

    ``counts`` is the budget of each layer as the method's rule prescribes (or bounds) it now; ``start_masks`` and ``ever_masks``
    are bits.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        layers: list[Layer],
        settings: Settings,
        ranks: Ranks,
        supports: Mapping[str, Support] | None = None,
    ) -> None:
        self.layers, self.settings, self.ranks = layers, settings, ranks
        pairs = parameters_of(layers).items()
        self.parameters = [SparseParameter(name, p, optimizer, settings.pure_gradient) for name, p in pairs]
        self._by_name = {sparse.name: sparse for sparse in self.parameters}
        for name, support in (supports or {}).items():
            hold(self._by_name[name], support)
        for sparse in self.parameters:
            sparse.moments.declared = settings.method.needs
        self._scales = momentum_scales(self.parameters)
        self.costs = [1.0] * len(layers)
        self.prices: Prices | None = None
        self.trained: TrainedWeights | None = None
        self.allowance = Allowance(self)
        self.calibration: Any = None
        self.data: Callable[[], Source] | None = None
        self.mask_listeners: list[Callable[[], None]] = []
        self.updates = 0
        self.counts: list[int] = []
        self.journal = Journal()
        self.memory: dict[str, float] = {}
        self.layer_memory: list[dict[str, Tensor]] = [{} for _ in layers]
        self.start_masks: list[Tensor] = []
        self.ever_masks: list[Tensor] = []

    # ---------------------------------------------------------------------------------------------- looking

    def of(self, layer: Layer) -> SparseParameter:
        """The parameter behind a layer."""
        return self._by_name[layer.parameter_name]

    def mask(self, layer: Layer) -> Tensor:
        """The mask of a layer: a view into its parameter's."""
        return layer.band(self.of(layer).mask)

    def mask_and_reach(self, layer: Layer) -> tuple[Tensor, Tensor | None]:
        """The mask of a layer that is a whole parameter, and where its gradients reach if that is farther."""
        reach = self.of(layer).reach
        return self.mask(layer), None if reach is None else reach.mask

    def present(self, layer: Layer) -> int:
        """How many weights of a layer exist."""
        return self.of(layer).support.nnz if layer.rows is None else count_of(self.mask(layer))

    def density(self, layer: Layer) -> float:
        """Share of a layer's weights that exist."""
        return self.present(layer) / layer.shape.numel()

    def view(self, index: int, place: int | None = None, mask: Tensor | None = None) -> LayerView:
        """What a criterion sees of layer ``index``; shadow weights, where there are any, take the place of the weights."""
        layer = self.layers[index]
        sparse = self.of(layer)
        kind: Callable[..., LayerView]
        if sparse.is_compact:
            shown, kind = torch.ones(sparse.support.nnz, dtype=torch.bool), partial(CompactView, support=sparse.support)
        else:
            shown, kind = self.mask(layer) if mask is None else mask, LayerView
        beside = None if self.trained is None else self.trained.side
        return kind(
            name=layer.name,
            index=index,
            place=index if place is None else place,
            weight=layer.band(sparse.trained),
            mask=shown,
            evidence=sparse.moments,
            rng=self.rng,
            output_dim=layer.output_dim,
            rows=layer.rows,
            momentum_scale=self._scales[sparse.name],
            cost=self.costs[index],
            memory=self.layer_memory[index],
            side={} if beside is None else beside.layers[index],
            shared={} if beside is None else beside.shared,
            ever_active=lambda: self._decoded(self.ever_masks[index], layer),
        )

    def rng(self, *key: str | int) -> torch.Generator:
        """Randomness of the coming update."""
        return randomness.generator(self.settings.seed, self.updates, *key)

    def counts_at(self, density: float) -> list[int]:
        """The budget of each layer at a density, exact in sum."""
        method = self.settings.method
        if method.fixed_counts is not None:
            return method.fixed_counts(self.layers)
        total = distributions.budget(density, [math.prod(s) for s in self._shapes()])
        return self.allowance.fit(distributions.exact_counts(self._densities(density), self._shapes(), total))

    def _densities(self, density: float) -> list[float]:
        names = [layer.name for layer in self.layers]
        return distributions.layer_densities(self.settings.distribution, names, self._shapes(), density)

    def _shapes(self) -> list[tuple[int, ...]]:
        return [tuple(layer.shape) for layer in self.layers]

    @torch.no_grad()
    def initialise(self, model: nn.Module, calibration: Any) -> None:
        """Draw the first masks and mask the weights."""
        settings, self.calibration = self.settings, calibration
        if all(sparse.is_compact for sparse in self.parameters):
            self._begin()
            return
        everything = [torch.ones(layer.shape, dtype=torch.bool, device=layer.parameter.device) for layer in self.layers]
        views = [self.view(i, mask=mask) for i, mask in enumerate(everything)]
        counts = self.counts_at(settings.density_at(0.0))
        self.counts_at(settings.density)  # a target that does not fit must fail here, not at a later update
        if isinstance(settings.distribution, Mapping):
            distributions.refuse_contradiction(self._densities(settings.density), self._shapes(), settings.density)
        setup = Setup(views, counts, self.layers, settings.seed, model, calibration, self.ranks.average)
        masks, self.counts = first_masks(setup, settings)
        check_first(settings.method, masks, self.counts)
        self.allowance.refuse_first([count_of(mask) for mask in masks])
        self.ranks.agree(masks, "at the start")
        self._replace(zip(self.layers, masks, strict=True))
        self._remember_first(masks)
        if self.trained is not None:
            self.trained.start()
        self._prepare()
        for sparse in self.parameters:
            sparse.mask_weight()
            sparse.mask_state()

    def _begin(self) -> None:
        """Start from layers that exist only sparse, as they are."""
        own = [self.marked(layer) for layer in self.layers]
        self.counts = [count_of(mask) for mask in own]
        self.ranks.agree(own, "at the start")
        self._remember_first(own)
        self._prepare()

    def _remember_first(self, masks: Sequence[Tensor | Marks]) -> None:
        self.start_masks = self._coded(masks)
        self.ever_masks = list(self.start_masks)  # codes are replaced, never written into

    def _prepare(self) -> None:
        """What methods keep besides masks, for new ones: signs, weights that gradients reach."""
        if self._has_theta:
            self._refresh_reach(Update([self.view(i) for i in range(len(self.layers))]))
        act(self, self.settings.method.prepare, step=0)

    def start_over(self, masks: Mapping[str, Tensor | Marks]) -> None:
        """Let these masks of whole parameters be the first ones: budget and history count from them."""
        for sparse in self.parameters:
            sparse.take_mask(masks[sparse.name])
        own = [self.marked(layer) for layer in self.layers]
        self.counts = [count_of(mask) for mask in own]
        self._remember_first(own)
        self._prepare()
        self._masks_changed()

    def replace_first(self, masks: list[Tensor]) -> None:
        """Let other masks be the first ones, before the first optimizer step."""
        self._replace(zip(self.layers, masks, strict=True))
        self.start_over({sparse.name: sparse.mask.clone() for sparse in self.parameters})
        for sparse in self.parameters:
            sparse.mask_weight()
            if sparse.parameter.grad is not None:
                sparse.parameter.grad.masked_fill_(~sparse.mask, 0)

    # ---------------------------------------------------------------------------------------------- updating

    def open_update(self, step: int, targets: list[int] | None = None) -> Update:
        """Collect what the pieces need; frozen layers do not take part."""
        method, progress = self.settings.method, self.settings.progress(step)
        if self.prices is not None:
            self.prices.require()
        self._scales = momentum_scales(self.parameters)  # schedulers may have changed momentum since
        active = [i for i, layer in enumerate(self.layers) if layer.parameter.requires_grad]
        views = [self.view(i, place) for place, i in enumerate(active)]
        if targets is None and method.density is not None:
            moves = self.settings.density_moves
            targets = self.counts_at(self.settings.density_at(progress)) if moves else list(self.counts)
        targets = [targets[i] for i in active] if targets else None
        if targets and method.only_removes:
            targets = distributions.reachable(targets, [view.nnz for view in views])
        check_finite(views, method.needs, f"topology update {self.updates} (step {step})")
        return Update(
            layers=views,
            number=self.updates,
            step=step,
            rate=method.rate(progress),
            targets=targets,
            floors=self._floors(views, targets, progress),
            memory=dict(self.memory),
            rng=self.rng,
            progress=progress,
            limit=self.allowance.limit_of(active),
            data=self.data,
        )

    def _floors(self, views: list[LayerView], targets: list[int] | None, progress: float) -> list[int] | None:
        """The lower bound of each layer before growth: at least one weight, at most what the layer ends with."""
        method = self.settings.method
        if method.floor is None:
            return None
        lowest = len(self.layers) / sum(math.prod(layer.shape) for layer in self.layers)
        floors = self.counts_at(max(lowest, method.floor(self.settings.density)(progress)))
        ends = targets or [view.nnz for view in views]
        return [min(floors[view.index], end) for view, end in zip(views, ends, strict=True)]

    @changing()
    def commit(self, update: Update, change: Change, window_stays_open: bool) -> None:
        """Check a change against the budget rule and between ranks, journal it, write it."""
        check_budget(self.settings.method, self.allowance, update, [count_of(mask) for mask in change.masks])
        change = located(update.layers, change)
        self.ranks.agree(change.masks, f"at topology update {self.updates} (step {update.step})")
        for view, mask in zip(update.layers, change.masks, strict=True):
            self._add_to_history(view.index, mask)
        if self.updates % self._journal_every == 0:
            self.journal.append(self._record(update, change))
        for view, mask, again in zip(update.layers, change.masks, _regrown(change), strict=True):
            layer = self.layers[view.index]
            move = move_entries if self.of(layer).is_compact else move_values
            move(self.of(layer), layer, view, mask, again, self.settings.method.grow, window_stays_open)
        self._replace((self.layers[view.index], mask) for view, mask in zip(update.layers, change.masks, strict=True))
        set_values(self.layers, [self.of(layer) for layer in self.layers], update, change)
        if update.targets is not None and self.settings.density_moves:
            taking_part = {view.index: target for view, target in zip(update.layers, update.targets, strict=True)}
            present = [self.present(layer) for layer in self.layers]
            self.counts = [taking_part.get(i, count) for i, count in enumerate(present)]
        elif self.settings.method.outcome is not None:
            self.counts = [self.present(layer) for layer in self.layers]
        self.memory = update.memory
        self.updates += 1
        if self._has_theta:
            self._refresh_reach(replace(update, layers=[self.view(view.index, view.place) for view in update.layers]))
        for sparse in self.parameters:
            sparse.mask_weight()
        self._masks_changed()

    def marked(self, layer: Layer) -> Tensor | Marks:
        """Which weights of a layer exist, without a mask where none is kept."""
        sparse = self.of(layer)
        return sparse.support.marks if sparse.is_compact else self.mask(layer)

    def _coded(self, masks: Sequence[Tensor | Marks]) -> list[Tensor]:
        return [coded(mask, self.settings.storage) for mask in masks]

    def _add_to_history(self, index: int, mask: Tensor | Marks) -> None:
        ever = self._decoded(self.ever_masks[index], self.layers[index])
        self.ever_masks[index] = coded(ever | mask, self.settings.storage)

    def _decoded(self, code: Tensor, layer: Layer) -> Any:
        found = decoded(code, layer.shape, self.settings.storage)
        if self.of(layer).is_compact:
            return found
        return (found.dense() if isinstance(found, Marks) else found).to(layer.parameter.device)

    @changing()
    def set_masks(self, masks: Mapping[str, Tensor | Marks]) -> None:
        """Replace the masks of whole parameters from outside the cycle (restored state)."""
        for sparse in self.parameters:
            sparse.take_mask(masks[sparse.name])
        self._masks_changed()

    def _masks_changed(self) -> None:
        for listener in self.mask_listeners:
            listener()

    def _replace(self, masks: Iterable[tuple[Layer, Any]]) -> None:
        """Give parameters new supports: one each, also where several layers are bands of it."""
        fresh: dict[str, Tensor] = {}
        for layer, mask in masks:
            sparse = self.of(layer)
            if sparse.is_compact:  # moved with its values
                continue
            layer.band(fresh.setdefault(sparse.name, sparse.mask.clone())).copy_(mask)
        for name, mask in fresh.items():
            self._by_name[name].mask = mask

    def _refresh_reach(self, update: Update) -> None:
        weighting = self.settings.method.weighting
        marks = (
            weighting.reach(update)
            if weighting and weighting.reach
            else [torch.ones_like(v.mask) for v in update.layers]
        )
        fresh: dict[str, Tensor] = {}
        for view, mark in zip(update.layers, marks, strict=True):
            layer = self.layers[view.index]
            name, reach = layer.parameter_name, self.of(layer).reach
            before = torch.ones_like(self.of(layer).mask) if reach is None else reach.mask.clone()
            layer.band(fresh.setdefault(name, before)).copy_(mark)
        for name, marked in fresh.items():
            self._by_name[name].reach = Support(marked)

    @property
    def _has_theta(self) -> bool:
        return any(sparse.theta is not None for sparse in self.parameters)

    @property
    def _journal_every(self) -> int:
        clock = self.settings.clock
        return clock.when.journal_every if clock is not None and clock.every == 1 else 1

    def _record(self, update: Update, change: Change) -> Record:
        shares = momentum_shares(update.layers, self.settings.method.needs)
        rows = []
        for view, share, mask, removed, grown in zip(
            update.layers, shares, change.masks, change.removed, change.grown, strict=True
        ):
            start = self._decoded(self.start_masks[view.index], self.layers[view.index])
            ever = coded_count(self.ever_masks[view.index], self.settings.storage)
            rows.append(layer_record(view, mask, removed, grown, share, start, ever))
        total, numel = sum(row.after for row in rows), sum(view.numel for view in update.layers)
        share = self.allowance.share({row.layer: row.after for row in rows})
        return Record(self.updates, update.step, update.rate, total, total / numel, tuple(rows), share, update.price)


def _regrown(change: Change) -> list[Any]:
    return [removed & grown for removed, grown in zip(change.removed, change.grown, strict=True)]
