"""What methods that train more than present weights must hold besides, one function per promise."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from regrow import randomness
from regrow.testing.trial import STEPS, Subject, Trial, small_network
from regrow.weighting import Product, Trained, Weighting

_TOLERANCE = 1e-6
_PLAIN = (nn.Conv2d, nn.Linear)


def check_finished(subject: Subject) -> None:
    """After any step the finished model, plain and masked, computes what evaluation computed before, and trains on."""
    if not subject.recipe.ends:
        return
    for done in (1, STEPS // 2, STEPS):
        trial = Trial(subject)
        list(trial.run(done))
        inputs = trial.batch(99)[0]
        before = _evaluated(trial, inputs)
        trial.handle.finish()
        after = _evaluated(trial, inputs)
        assert torch.allclose(before, after, rtol=0, atol=_TOLERANCE), (
            f"the model finished after step {done} computes something else than evaluation did"
        )
        odd = [name for name, module in trial.model.named_modules() if _layer(module) and type(module) not in _PLAIN]
        assert not odd, f"layer {odd[0]} is not a plain one after finish()"
        masks = trial.masks()
        trial.step()
        assert all(torch.equal(a, b) for a, b in zip(masks, trial.masks(), strict=True)), "a finished mask moved"
        for name, weight, mask, _ in trial.layers():
            assert not bool((weight[~mask] != 0).any()), f"{name} has weights outside its mask after finish()"


def check_evaluation(subject: Subject) -> None:
    """Evaluation draws nothing, changes nothing, and gives the same output every time."""
    trial = Trial(subject)
    list(trial.run(3))
    state, inputs = torch.get_rng_state(), trial.batch(99)[0]
    first = _evaluated(trial, inputs)
    weights = {k: v.clone() for k, v in trial.model.state_dict().items()}
    with _no_draws():
        again = _evaluated(trial, inputs)
    assert torch.equal(first, again), "evaluation gives another output the second time"
    assert torch.equal(state, torch.get_rng_state()), "evaluation draws from torch's global generator"
    moved = [k for k, v in trial.model.state_dict().items() if not torch.equal(v, weights[k])]
    assert not moved, f"evaluation changes {moved[0]}"


def check_derivatives(subject: Subject) -> None:
    """Penalty, weights shown and trained with, and products have the derivatives that autograd says (but declared straight-through)."""
    weighting = subject.recipe.weighting
    if weighting is None:
        return
    trial = Trial(subject, dtype=torch.float64)
    list(trial.run(5))
    for index in range(len(trial.handle.network.layers)):
        for name, piece in (("show", weighting.show), ("train", weighting.train)):
            if piece is not None:
                _gradcheck(trial, index, weighting, piece, name)
        if weighting.penalty is not None:
            _gradcheck(trial, index, weighting, lambda view: weighting.penalty([view]), "penalty")
        if weighting.product is not None:
            _gradcheck(trial, index, weighting, lambda view: _multiplied(weighting, view), "product")


def check_neutral(subject: Subject) -> None:
    """With the options that the method declares neutral, and all weights present, it trains as the dense network does."""
    neutral = subject.recipe.neutral
    if neutral is None:
        return
    name = subject.recipe.name if isinstance(subject.method, str) else subject.method
    options = {**subject.options, **neutral} if isinstance(subject.method, str) else {}
    trial = Trial(Subject(name, options), density=1.0)
    plain = small_network()
    plain.load_state_dict(Trial(Subject("dense")).model.state_dict())
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    for _ in range(STEPS):
        inputs, targets = trial.batch(trial.done)
        optimizer.zero_grad()
        (plain(inputs) - targets).square().mean().backward()
        optimizer.step()
        trial.step()
    for sparse in trial.handle.parameters:
        wanted = plain.get_parameter(sparse.name)
        assert torch.allclose(sparse.trained, wanted, atol=_TOLERANCE), (
            f"{sparse.name} is not what dense training makes of it under neutral options {dict(neutral)}"
        )


def _evaluated(trial: Trial, inputs: Tensor) -> Tensor:
    trial.model.eval()
    with torch.no_grad():
        output = trial.model(inputs)
    trial.model.train()
    return output


def _layer(module: nn.Module) -> bool:
    return isinstance(module, _PLAIN)


@contextmanager
def _no_draws() -> Iterator[None]:
    """Inside, asking for a generator is an error."""

    def refuse(seed: int, *key: str | int) -> torch.Generator:
        raise AssertionError("evaluation draws random numbers")

    kept, randomness.generator = randomness.generator, refuse
    try:
        yield
    finally:
        randomness.generator = kept


def _gradcheck(trial: Trial, index: int, weighting: Weighting, piece: Any, name: str) -> None:
    view = trial.handle.trained.view(index, leaf=True)
    sides = [key for key in view.side if key not in weighting.straight]
    shared = list(view.shared)
    start = [view.theta, *(view.side[key] for key in sides), *(view.shared[key] for key in shared)]
    leaves = [tensor.detach().clone().requires_grad_() for tensor in start]

    def compute(theta: Tensor, *rest: Tensor) -> Tensor:
        fresh: Trained = copy.copy(view)
        fresh.theta = theta
        fresh.side = {**view.side, **dict(zip(sides, rest, strict=False))}
        fresh.shared = {**view.shared, **dict(zip(shared, rest[len(sides) :], strict=False))}
        return piece(fresh)

    layer = trial.handle.network.layers[index].name
    found = torch.autograd.gradcheck(compute, leaves, eps=1e-7, atol=1e-4, rtol=1e-3, raise_exception=False)
    assert found, f"the {name} of layer {layer} has another derivative than autograd says"


def _multiplied(weighting: Weighting, view: Trained) -> Tensor:
    module: Any = view.layer.module
    linear = isinstance(module, nn.Linear)
    source = torch.Generator().manual_seed(3)
    shape = (2, module.in_features) if linear else (2, module.in_channels, 4, 4)
    x = torch.randn(shape, generator=source, dtype=torch.float64)
    multiply = nn.functional.linear if linear else module._conv_forward
    draws = torch.Generator().manual_seed(4)

    def normal(like: Tensor) -> Tensor:
        return torch.randn(like.shape, generator=draws, dtype=like.dtype)

    return weighting.product(Product(x, None, view, multiply, normal))  # type: ignore[misc]
