"""What a weighting needs around a step: theta and side parameters kept, weights shown, gradients brought back."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from regrow import randomness
from regrow.errors import StateError
from regrow.product import LayerProduct
from regrow.side import SideParameters
from regrow.weighting import Trained, Weighting

if TYPE_CHECKING:
    from regrow.network import SparseNetwork
    from regrow.parameter import SparseParameter


class TrainedWeights:
    """The trained weights of a method with a :class:`Weighting`; for the others there is nothing here to do.

    Between steps the model holds the weights as shown. A forward pass in training mode puts in those that training computes with.
    """

    def __init__(self, network: SparseNetwork, now: Callable[[], int], verify: Callable[[], None]) -> None:
        self.network, self.now, self._verify = network, now, verify
        self.weighting: Weighting | None = network.settings.method.weighting
        self.side: SideParameters | None = None
        self.penalty: float | None = None
        self._products: list[LayerProduct] = []
        self._training: set[str] = set()
        self._hooks: list[Any] = []

    @property
    def acts(self) -> bool:
        """Whether weights are more than theta under a mask."""
        return self.weighting is not None and self.weighting.ends

    # ---------------------------------------------------------------------------------------------- starting

    def start(self) -> None:
        """Make theta and side parameters, from the weights as they are."""
        if self.weighting is None:
            return
        for sparse in self.network.parameters:
            sparse.theta = sparse.parameter.detach().clone()
        if self.acts:
            self._equip()

    def _equip(self) -> None:
        views = [self.view(index) for index in range(len(self.network.layers))]
        self.side = SideParameters(self.network, self.weighting, views)  # type: ignore[arg-type]  # acts
        for sparse in self.network.parameters:
            sparse.shown = self._shower(sparse)

    def watch(self, model: nn.Module) -> None:
        """Follow a model's modes, where training computes with other weights."""
        if self.weighting is None or not self.weighting.trains_otherwise:
            return
        if self.weighting.product is not None:
            self._products = [LayerProduct(self, i, layer.module) for i, layer in enumerate(self.network.layers)]
            for product in self._products:
                self._hooks += product.attach()
            return
        watcher = ModeWatcher(self)
        for module in dict.fromkeys([model, *(layer.module for layer in self.network.layers)]):
            self._hooks += [
                module.register_forward_pre_hook(watcher),
                module.register_state_dict_pre_hook(watcher.rest),
            ]

    # ---------------------------------------------------------------------------------------------- showing

    def view(self, index: int, leaf: bool = False) -> Trained:
        """One layer; as a ``leaf`` theta and side parameters are fresh ones to differentiate by, at least in float32."""
        layer, settings = self.network.layers[index], self.network.settings
        sparse, step = self.network.of(layer), self.now()
        theta = layer.band(sparse.trained)
        if leaf:
            theta = theta.to(torch.promote_types(theta.dtype, torch.float32)).detach().requires_grad_(True)
        own, common = ({}, {}) if self.side is None else (self.side.layers[index], self.side.shared)
        return Trained(
            layer=layer,
            index=index,
            theta=theta,
            mask=self.network.mask(layer),
            side={name: _leaf(p, leaf) for name, p in own.items()},
            shared={name: _leaf(p, leaf) for name, p in common.items()},
            memory=self.network.layer_memory[index],
            rng=lambda *key: randomness.generator(settings.seed, "step", step, *key),
            progress=settings.progress(step),
            samples=settings.samples or 1,
            steps=settings.steps,
        )

    def _shower(self, sparse: SparseParameter) -> Callable[[], Tensor]:
        return lambda: self._weights(sparse, None if self.weighting is None else self.weighting.show)

    @torch.no_grad()
    def _weights(self, sparse: SparseParameter, make: Callable[[Trained], Tensor] | None) -> Tensor:
        """A whole parameter as ``make`` has it, layer by layer."""
        whole = torch.empty_like(sparse.parameter)
        for index, layer in self._layers_of(sparse):
            view = self.view(index)
            layer.band(whole).copy_(view.theta * view.mask if make is None else make(view))
        return whole

    def _layers_of(self, sparse: SparseParameter) -> Iterator[tuple[int, Any]]:
        return ((i, layer) for i, layer in enumerate(self.network.layers) if layer.parameter_name == sparse.name)

    @torch.no_grad()
    def follow_modes(self, rest: bool = False) -> None:
        """Show each layer as its mode asks: with the weights of training, or as in evaluation."""
        if self.weighting is None or self.weighting.train is None:
            return
        for sparse in self.network.parameters:
            trains = not rest and any(layer.module.training for _, layer in self._layers_of(sparse))
            if trains == (sparse.name in self._training):
                continue
            # Counted by autograd, unlike writes through .data: a backward pass across a change of mode is an error, not a wrong number.
            if trains:
                self._verify()  # weights loaded since the last step, before they are written over
                sparse.parameter.copy_(self._weights(sparse, self.weighting.train))
                self._training.add(sparse.name)
            else:
                sparse.parameter.copy_(sparse.shown() * sparse.mask if sparse.shown else sparse.trained * sparse.mask)
                self._training.discard(sparse.name)

    # ---------------------------------------------------------------------------------------------- stepping

    def noise(self, index: int, call: int) -> Callable[[Tensor], Tensor]:
        """Standard normal draws for one call of a layer: its ``n``-th by (seed, step, layer, rank, call, n)."""
        seed, step, rank = self.network.settings.seed, self.now(), self.network.ranks.rank
        count = iter(range(2**31))

        def draw(like: Tensor) -> Tensor:
            return randomness.normal(
                like, randomness.generator(seed, "step", step, "noise", index, rank, call, next(count))
            )

        return draw

    def pull(self, scale: Tensor | None) -> None:
        """Turn gradients of the weights that training computed with into those of theta and side parameters; add the penalty's.

        ``scale`` is a factor that the optimizer itself will take off the weights' gradients.
        """
        if not self.acts or self.weighting is None:
            return
        factor = 1.0 if scale is None else float(scale)
        active = [i for i, layer in enumerate(self.network.layers) if _has_gradient(layer.parameter)]
        if self.weighting.product is not None:
            self._pull_products(active, factor)
        elif self.weighting.show is not None or self.weighting.train is not None:
            for index in active:
                self._pull_layer(index, factor)
        if self.weighting.penalty is not None:
            self._penalise(self.weighting.penalty, active, factor)

    def _pull_products(self, active: list[int], factor: float) -> None:
        found = (self._products[index].factor() for index in active)
        usual = next((value for value in found if value is not None), None)
        for index in active:
            for name, grad in self._products[index].collect(usual).items():
                self._add(self.side.layers[index][name], self.network.ranks.average(grad.contiguous()) / factor)  # type: ignore[union-attr]

    @torch.enable_grad()
    def _pull_layer(self, index: int, factor: float) -> None:
        layer, weighting, view = self.network.layers[index], self.weighting, self.view(index, leaf=True)
        make = weighting.train or weighting.show  # type: ignore[union-attr]
        leaves = [view.theta, *view.side.values(), *view.shared.values()]
        grad = layer.band(layer.parameter.grad)  # type: ignore[arg-type]  # active
        shown = make(view)  # type: ignore[misc]
        if not shown.requires_grad:
            return
        found = torch.autograd.grad(shown, leaves, grad.to(shown.dtype), materialize_grads=True)
        grad.copy_(found[0])
        self._give(index, found[1:], 1 / factor)

    @torch.enable_grad()
    def _penalise(self, penalty: Callable[..., Tensor], active: list[int], factor: float) -> None:
        views = [self.view(index, leaf=True) for index in active]
        if not views:
            return
        for view in views[1:]:
            view.shared = views[0].shared
        value = penalty(views)
        self.penalty = float(value.detach())
        leaves = [[view.theta, *view.side.values()] for view in views]
        flat = [leaf for own in leaves for leaf in own] + list(views[0].shared.values())
        if not value.requires_grad:
            return
        found = list(torch.autograd.grad(value, flat, materialize_grads=True))
        for index, own in zip(active, leaves, strict=True):
            mine, found = found[: len(own)], found[len(own) :]
            layer = self.network.layers[index]
            layer.band(layer.parameter.grad).add_(mine[0].to(layer.parameter.dtype), alpha=factor)  # type: ignore[arg-type]
            self._give(index, mine[1:], 1.0)
        for parameter, grad in zip(self.side.shared.values() if self.side else (), found, strict=True):
            self._add(parameter, grad)

    def _give(self, index: int, grads: Any, factor: float) -> None:
        """Add gradients to a layer's side parameters, then the shared ones."""
        if self.side is None:
            return
        own = [*self.side.layers[index].values(), *self.side.shared.values()]
        for parameter, grad in zip(own, grads, strict=False):
            self._add(parameter, grad * factor)

    def _add(self, parameter: nn.Parameter, grad: Tensor) -> None:
        grad = grad.detach().to(parameter.dtype)
        parameter.grad = grad if parameter.grad is None else parameter.grad + grad

    @torch.no_grad()
    def step(self) -> None:
        """After the optimizer's step: that of the side parameters, and whatever settles them."""
        if not self.acts or self.weighting is None:
            return
        if self.side is not None:
            self.side.step()
        if self.weighting.settle is not None:
            for index, layer in enumerate(self.network.layers):
                if layer.parameter.requires_grad:
                    self.weighting.settle(self.view(index))
        self._training.clear()

    # ---------------------------------------------------------------------------------------------- ending

    @torch.no_grad()
    def finish(self) -> None:
        """Leave the weights as shown, plain and masked, and nothing beside them."""
        for sparse in self.network.parameters:
            sparse.mask_weight()
            sparse.theta, sparse.reach, sparse.shown = None, None, None
            sparse.mask_state()
        self.detach()
        self.weighting, self.side = None, None

    def detach(self) -> None:
        """Remove hooks, and put modules back."""
        for hook in self._hooks:
            hook.remove()
        for product in self._products:
            product.detach()
        self._hooks, self._products = [], []
        self._training.clear()

    def state(self) -> dict[str, Any] | None:
        """Side parameters and their optimizer's state; None where there are none, or no longer."""
        return None if self.side is None else self.side.state()

    def check(self, state: dict[str, Any] | None, finished: bool) -> None:
        """Refuse a state that :meth:`restore` could not take, or that would leave side parameters as they were at the start."""
        if finished or not self.acts or self.side is None:
            return
        if state is None:
            raise StateError("side of the saved state is missing: it is damaged, or of another run")
        self.side.check(state)

    def restore(self, state: dict[str, Any] | None, finished: bool) -> None:
        """Continue from :meth:`state`."""
        self._training.clear()
        if finished:
            self.detach()
            for sparse in self.network.parameters:
                sparse.shown = None
            self.weighting, self.side = None, None
            return
        if self.acts and state is not None:
            if self.side is None:
                self._equip()
            self.side.restore(state)  # type: ignore[union-attr]  # equipped


class ModeWatcher:
    """Shows a model's weights as its mode asks, before it computes; in copies of the model it watches for nobody."""

    def __init__(self, trained: TrainedWeights | None = None) -> None:
        self._trained = None if trained is None else weakref.ref(trained)

    def __call__(self, *_: Any) -> None:
        """Before a forward pass."""
        if self._trained is not None and (trained := self._trained()) is not None:
            trained.follow_modes()

    def rest(self, *_: Any) -> None:
        """Before the weights are saved: as in evaluation."""
        if self._trained is not None and (trained := self._trained()) is not None:
            trained.follow_modes(rest=True)

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """A copy that watches for nobody."""
        return ModeWatcher, ()


def _leaf(parameter: nn.Parameter, fresh: bool) -> Tensor:
    return parameter.detach().requires_grad_(True) if fresh else parameter.detach()


def _has_gradient(parameter: nn.Parameter) -> bool:
    return parameter.requires_grad and parameter.grad is not None
