"""What every method must hold, one function per promise."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from regrow.errors import RegrowError
from regrow.methods import Method
from regrow.testing.promises import check_derivatives, check_evaluation, check_finished, check_neutral
from regrow.testing.ranks import check_ranks
from regrow.testing.trial import (
    OPTIMIZERS,
    STEPS,
    Subject,
    Trial,
    all_alike,
    dead_units,
    differing,
    fitting_optimizers,
    flatten,
    one_weight_each,
)
from regrow.topology.distribution import budget
from regrow.topology.journal import Record, distance

Check = Callable[[Subject], None]


class ConformanceError(AssertionError):
    """A method broke one or more promises."""


def check_method(
    method: str | Method,
    *,
    options: Mapping[str, Any] | None = None,
    density: float = 0.3,
    checks: Sequence[Check] | None = None,
    ranks: bool = False,
    storage: Literal["dense", "compact"] = "dense",
) -> None:
    """Run the conformance suite on a method; raise one error that lists every broken promise.

    Args:
        method: a registered name, or a :class:`regrow.Method` of your own.
        options: the method's own options.
        density: density of the small networks it is tried on.
        checks: a selection of :data:`CHECKS`; all by default.
        storage: ``dense`` with masked execution, or ``compact`` on sparse kernels.
        ranks: also train on two processes (registered names only, since processes cannot share closures).

    Example:
        >>> check_method("static", checks=[check_budget, check_layers_live])
    """
    subject = Subject(method, dict(options or {}), density, storage)
    failures = []
    for check in CHECKS if checks is None else checks:
        try:
            check(subject)
        except (
            AssertionError,
            RegrowError,
            RuntimeError,
            ValueError,
            TypeError,
            LookupError,
            ArithmeticError,
        ) as error:
            failures.append(f"{check.__name__}: {type(error).__name__}: {error}")
    if ranks:
        check_ranks([(subject.recipe.name, subject.options)])
    if failures:
        raise ConformanceError(f"method {subject.recipe.name!r} fails\n  " + "\n  ".join(failures))


def check_budget(subject: Subject) -> None:
    """The declared budget rule holds at the start and after every step: exactly, or as an upper bound."""
    trial = Trial(subject)
    _within_budget(trial, "at the start")
    for state in trial.run():
        _within_budget(state, f"after step {state.done}")


def check_layers_live(subject: Subject) -> None:
    """No layer is emptied, none has more weights than positions, masks stay boolean tensors of the layer's shape."""
    trial = Trial(subject)
    for state in trial.run():
        for name, weight, mask, _ in state.layers():
            form = (mask.dtype, mask.shape)
            assert form == (torch.bool, weight.shape), f"the mask of {name} became {form}"
            count = int(mask.count_nonzero())
            assert 1 <= count <= mask.numel(), f"{name} has {count} of {mask.numel()} weights after step {state.done}"


def check_weights_outside_masks(subject: Subject) -> None:
    """Weights outside the mask are exactly zero after every step, and in forward passes unless training has weights of its own."""
    trial = Trial(subject)
    parameters = {sparse.name: sparse for sparse in trial.handle.parameters}

    def look(module: nn.Module, *_: Any) -> None:
        for name, sparse in parameters.items():
            if any(sparse.parameter is p for p in module.parameters(recurse=False)):
                assert sparse.misfit() == 0, f"{name} has weights outside its mask in the forward pass"

    weighting = subject.recipe.weighting
    if weighting is None or not weighting.trains_otherwise:
        for module in trial.model.modules():
            module.register_forward_pre_hook(look)
    for state in trial.run():
        for name, weight, mask, _ in state.layers():
            outside = int((weight[~mask] != 0).count_nonzero())
            assert outside == 0, f"{outside} weights of {name} lie outside the mask after step {state.done}"


def check_missing_state(subject: Subject) -> None:
    """Optimizer state of missing weights is zero (methods with shadow weights train those too and are exempt)."""
    if subject.recipe.weighting is not None:
        return
    for make in (OPTIMIZERS["SGD with weight decay"], OPTIMIZERS["Adam"]):
        for state in Trial(subject, optimizer=make).run():
            for name, _, mask, slots in state.layers():
                for slot, values in slots.items():
                    count = int(values[~mask].count_nonzero())
                    assert count == 0, f"{slot} of {name} is set at {count} missing weights after step {state.done}"


def check_grown_weights(subject: Subject) -> None:
    """Grown weights start at their declared value, and their momentum at zero or at the momentum the window saw."""
    grow = subject.recipe.grow
    recipe = subject.recipe
    if recipe.weighting is not None or recipe.rounds is not None or recipe.sets_values:
        return
    trial = Trial(subject)
    dense = _DenseMomentum(trial, 0.9)
    before = trial.masks()
    while trial.done < STEPS:
        dense.look()
        trial.step()
        for (name, weight, mask, slots), old, smooth in zip(trial.layers(), before, dense.layers(), strict=True):
            born = mask & ~old
            start = weight[born].abs()
            expected = grow.value if grow is not None else 0.0
            assert bool((start == expected).all()), f"grown weights of {name} start at {start.tolist()}, not {expected}"
            momentum = slots.get("momentum_buffer", torch.zeros_like(weight))[born]
            wanted = smooth[born] if grow is not None and grow.state == "seed" else torch.zeros_like(momentum)
            assert torch.allclose(momentum, wanted, rtol=1e-4, atol=1e-7), f"momentum of grown weights of {name} is off"
        before = trial.masks()


def check_deterministic(subject: Subject) -> None:
    """Two runs with one seed agree in every bit."""
    first, second = Trial(subject), Trial(subject)
    for a, b in zip(first.run(), second.run(), strict=True):
        _assert_equal(a.tensors(), b.tensors(), f"two equal runs differ after step {a.done}")


def check_global_randomness(subject: Subject) -> None:
    """The method neither uses nor advances torch's global generator."""
    quiet = Trial(subject)
    list(quiet.run())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(99)
        start = torch.get_rng_state()
        noisy = Trial(subject)
        assert torch.equal(torch.get_rng_state(), start), "sparsify draws from torch's global generator"
        while noisy.done < STEPS:
            torch.rand(noisy.done + 1)
            start = torch.get_rng_state()
            noisy.step()
            assert torch.equal(torch.get_rng_state(), start), "a step draws from torch's global generator"
    _assert_equal(quiet.tensors(), noisy.tensors(), "the run depends on the user's random numbers")


def check_resume(subject: Subject) -> None:
    """A run saved after any step and loaded into a fresh model continues to the same bits."""
    whole = Trial(subject)
    saved = [_save(whole), *(_save(state) for state in whole.run())]
    end = flatten(whole.handle.state_dict())
    for data in saved:
        resumed = Trial(subject, model_seed=2)
        _load(resumed, data)
        start = resumed.done
        list(resumed.run())
        _assert_equal(whole.tensors(), resumed.tensors(), f"resuming after step {start} leads elsewhere")
        again = flatten(resumed.handle.state_dict())
        differing = sorted(k for k in end.keys() | again.keys() if end.get(k) != again.get(k))
        assert not differing, f"resuming after step {start} leads to another state: {', '.join(differing[:4])}"


def check_journal(subject: Subject) -> None:
    """Counts, distances and the ever-active share in the journal agree with the masks themselves."""
    trial = Trial(subject)
    first = previous = trial.masks()
    ever, seen = [mask.clone() for mask in first], 0
    for state in trial.run():
        masks = state.masks()
        ever = [old | new for old, new in zip(ever, masks, strict=True)]
        for record in state.handle.journal[seen:]:
            _assert_record(record, previous, masks, first, ever)
        seen, previous = len(state.handle.journal), masks
    clock = trial.handle.settings.clock
    if clock is not None:
        assert trial.handle.updates > 0, f"no topology update in {STEPS} steps"
        assert trial.handle.journal, "updates were not journalled"


def check_frozen_layers(subject: Subject) -> None:
    """A layer frozen during training keeps its mask and its weights; the others go on within the budget."""
    trial = Trial(subject)
    list(trial.run(3))
    frozen = trial.handle.network.layers[1]
    frozen.parameter.requires_grad_(False)
    weight, mask = frozen.parameter.detach().clone(), trial.handle.network.mask(frozen).clone()
    while trial.done < STEPS:
        trial.backward()
        trial.optimizer.step()
        trial.done += 1
        assert torch.equal(trial.handle.network.mask(frozen), mask), f"a frozen mask changed at step {trial.done}"
        assert torch.equal(frozen.parameter, weight), f"frozen weights changed at step {trial.done}"
        if trial.handle.method.budget in ("constant", "schedule"):
            counts = (trial.handle.nonzeros, trial.handle.budget)
            assert counts[0] == counts[1], f"{counts[0]} weights at step {trial.done}, budget {counts[1]}"


def check_degenerate_shapes(subject: Subject) -> None:
    """Layers of one weight, density 1, tied scores and dead units neither fail nor break the budget."""
    cases: list[dict[str, Any]] = [
        {"network": one_weight_each, "density": 1.0},
        {"density": 1.0},
        {"network": all_alike},
        {"network": dead_units},
    ]
    for case in cases:
        _examine(Trial(subject, **case))


def check_dtypes(subject: Subject) -> None:
    """Parameters in bfloat16 and float64 train as well, and keep their type."""
    kinds = (torch.bfloat16, torch.float64) if subject.storage == "dense" else (torch.float64,)  # as kernels have
    for dtype in kinds:
        trial = Trial(subject, dtype=dtype)
        _examine(trial)
        for name, weight, _, _ in trial.layers():
            assert weight.dtype == dtype, f"{name} became {weight.dtype} instead of {dtype}"


def check_optimizers(subject: Subject) -> None:
    """Budget and masks hold with other optimizers, also those without a momentum buffer."""
    for make in fitting_optimizers(subject).values():
        _examine(Trial(subject, optimizer=make))


CHECKS: list[Check] = [
    check_budget,
    check_layers_live,
    check_weights_outside_masks,
    check_missing_state,
    check_grown_weights,
    check_deterministic,
    check_global_randomness,
    check_resume,
    check_journal,
    check_frozen_layers,
    check_degenerate_shapes,
    check_dtypes,
    check_optimizers,
    check_finished,
    check_evaluation,
    check_derivatives,
    check_neutral,
]
"""Every check but the one on several processes, in the order they run."""


class _DenseMomentum:
    """Heavy-ball momentum of all weights, present or missing, recorded beside the run."""

    def __init__(self, trial: Trial, coefficient: float) -> None:
        self.trial, self.coefficient = trial, coefficient
        self.buffers = {sparse.name: torch.zeros(sparse.shape) for sparse in trial.handle.parameters}

    def look(self) -> None:
        """Before a step: its gradient, on a dense copy."""
        twin = copy.deepcopy(self.trial.model)
        twin.zero_grad()
        self.trial.loss(*self.trial.batch(self.trial.done), twin).backward()
        for name, buffer in self.buffers.items():
            grad = twin.get_parameter(name).grad
            buffer.mul_(self.coefficient).add_(torch.zeros_like(buffer) if grad is None else grad)

    def layers(self) -> list[Tensor]:
        return [layer.band(self.buffers[layer.parameter_name]) for layer in self.trial.handle.network.layers]


def _within_budget(trial: Trial, when: str) -> None:
    rule, count, allowed = trial.handle.method.budget, trial.handle.nonzeros, trial.prescribed()
    if rule == "upper bound":
        assert count <= allowed, f"{count} weights {when}, at most {allowed} allowed"
    elif rule == "outcome":
        allowed = budget(trial.handle.settings.density, [mask.numel() for mask in trial.handle.masks.values()])
        assert not trial.handle.finished or count == allowed, f"{count} weights {when}, the cut was to {allowed}"
    elif rule != "free":
        assert count == allowed, f"{count} weights {when}, the budget rule ({rule}) prescribes {allowed}"
        assert trial.handle.budget == allowed, f"handle.budget says {trial.handle.budget} {when}, not {allowed}"


def _examine(trial: Trial) -> None:
    """Budget, life and zeros over a whole run."""
    _within_budget(trial, "at the start")
    for state in trial.run():
        _within_budget(state, f"after step {state.done}")
        for name, weight, mask, _ in state.layers():
            assert bool(mask.any()), f"{name} was emptied at step {state.done}"
            assert not bool((weight[~mask] != 0).any()), f"{name} has weights outside its mask after step {state.done}"
            assert bool(torch.isfinite(weight).all()), f"{name} is not finite after step {state.done}"


def _assert_equal(a: Mapping[str, Tensor], b: Mapping[str, Tensor], message: str) -> None:
    names = differing(a, b)
    assert not names, f"{message}: {', '.join(names[:4])}"


def _assert_record(
    record: Record, before: list[Tensor], after: list[Tensor], start: list[Tensor], ever: list[Tensor]
) -> None:
    """One record against the masks around its update."""
    assert record.budget == sum(row.after for row in record.layers), "the record's budget is not its layers' sum"
    for row, old, new, first, union in zip(record.layers, before, after, start, ever, strict=True):
        where = f"journal of {row.layer} at update {record.update}"
        counts = (int(old.count_nonzero()), int(new.count_nonzero()))
        assert (row.before, row.after) == counts, f"{where}: {row.before} -> {row.after}, masks say {counts}"
        assert row.after == row.before - row.removed + row.grown, f"{where}: removed and grown do not add up"
        gone, come = int((old & ~new).count_nonzero()), int((new & ~old).count_nonzero())
        assert (gone, come) == (row.removed - row.regrown_at_once, row.grown - row.regrown_at_once), f"{where}: counts"
        assert row.density == row.after / new.numel(), f"{where}: density"
        assert row.distance_to_previous == distance(new, old), f"{where}: distance to the previous mask"
        assert row.distance_to_start == distance(new, first), f"{where}: distance to the start"
        assert row.ever_active == int(union.count_nonzero()) / new.numel(), f"{where}: ever-active share"


def _save(trial: Trial) -> tuple[int, bytes]:
    buffer = io.BytesIO()
    parts = (trial.model.state_dict(), trial.optimizer.state_dict(), trial.handle.state_dict())
    torch.save(parts, buffer)
    return trial.done, buffer.getvalue()


def _load(trial: Trial, saved: tuple[int, bytes]) -> None:
    trial.done = saved[0]
    # weights_only refuses anything but tensors and plain containers: a state must not need pickled code.
    model, optimizer, handle = torch.load(io.BytesIO(saved[1]), weights_only=True)
    trial.model.load_state_dict(model)
    trial.optimizer.load_state_dict(optimizer)
    trial.handle.load_state_dict(handle)
