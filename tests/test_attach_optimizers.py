"""Optimizers of every kind under a handle: torch's, others', SAM, and those that are refused."""

import copy

import pytest
import torch
from torch.optim import SGD, Adadelta, Adafactor, Adagrad, Adam, AdamW, Muon, NAdam, RAdam, RMSprop, Rprop

import regrow
from regrow.errors import ConfigurationError, UnsupportedError
from tests.support.training import (
    assert_sparse,
    batches,
    bits,
    loss_of,
    same_weights,
    sgd,
    small_net,
    sparse_run,
    train,
)

OPTIMIZERS = {
    "sgd": lambda p, **k: SGD(p, lr=0.1, **k),
    "sgd-momentum": lambda p, **k: SGD(p, lr=0.05, momentum=0.9, **k),
    "sgd-nesterov": lambda p, **k: SGD(p, lr=0.05, momentum=0.9, nesterov=True, **k),
    "sgd-dampening": lambda p, **k: SGD(p, lr=0.05, momentum=0.9, dampening=0.4, **k),
    "sgd-decay": lambda p, **k: SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-2, **k),
    "adam": lambda p, **k: Adam(p, lr=1e-2, **k),
    "adam-amsgrad": lambda p, **k: Adam(p, lr=1e-2, amsgrad=True, weight_decay=1e-2, **k),
    "adamw": lambda p, **k: AdamW(p, lr=1e-2, weight_decay=0.1, **k),
    "nadam": lambda p, **k: NAdam(p, lr=1e-2, **k),
    "radam": lambda p, **k: RAdam(p, lr=1e-2, **k),
    "rmsprop": lambda p, **k: RMSprop(p, lr=1e-3, **k),
    "rmsprop-all": lambda p, **k: RMSprop(p, lr=1e-3, momentum=0.9, centered=True, weight_decay=1e-2, **k),
    "adagrad": lambda p, **k: Adagrad(p, lr=1e-2, **k),
    "adadelta": lambda p, **k: Adadelta(p, lr=1.0, **k),
    "adafactor": lambda p, **k: Adafactor(p, lr=1e-2, **k),
}
FUSED = {name for name in OPTIMIZERS if name.split("-")[0] in ("sgd", "adam", "adamw", "adagrad")}
VARIANTS = [
    (name, variant)
    for name in OPTIMIZERS
    for variant in ("default", "foreach", "fused")
    if variant != "fused" or name in FUSED
]


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
@pytest.mark.parametrize("method", ["sparse-momentum", "rigl"])
def test_every_optimizer_trains_sparse(name, variant, method):
    options = {} if variant == "default" else {variant: True}
    model, optimizer, handle = sparse_run(
        method=method, optimizer=lambda m: OPTIMIZERS[name](m.parameters(), **options)
    )
    start, before = bits(handle).clone(), [p.detach().clone() for p in model.parameters()]
    train(model, optimizer, batches(13), lambda: assert_sparse(handle))
    assert handle.step == 13
    assert handle.updates >= 3
    assert not torch.equal(bits(handle), start)
    assert handle.nonzeros == int(start.count_nonzero())
    assert all(not torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))


def test_muon_with_a_companion_for_biases():
    model = small_net()
    muon = Muon([p for p in model.parameters() if p.ndim == 2], lr=0.02)
    rest = SGD([p for p in model.parameters() if p.ndim < 2], lr=0.1)
    handle = regrow.sparsify(model, muon, density=0.3, steps=40, update_every=4)
    start = bits(handle).clone()
    for batch in batches(13):
        muon.zero_grad()
        rest.zero_grad()
        loss_of(model, batch).backward()
        muon.step()
        rest.step()
        assert_sparse(handle)
    assert handle.updates == 3
    assert not torch.equal(bits(handle), start)


class Lion(torch.optim.Optimizer):
    """A third-party optimizer: sign of a mixed momentum."""

    def __init__(self, params, lr=1e-3):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                moment = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                p.add_(moment.mul(0.9).add(p.grad, alpha=0.1).sign(), alpha=-group["lr"])
                moment.mul_(0.99).add_(p.grad, alpha=0.01)


def test_an_optimizer_nobody_has_heard_of():
    model, optimizer, handle = sparse_run(optimizer=lambda m: Lion(m.parameters()))
    start = bits(handle).clone()
    train(model, optimizer, batches(13), lambda: assert_sparse(handle))
    assert handle.updates == 3
    assert not torch.equal(bits(handle), start)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda p: torch.optim.LBFGS(p), "LBFGS"),
        (lambda p: torch.optim.SparseAdam(p), "SparseAdam"),
        (lambda p: "adam", "str"),
    ],
)
def test_unsupported_optimizers_are_refused(make, what):
    model = small_net()
    before = copy.deepcopy(model)
    with pytest.raises(UnsupportedError, match=what):
        regrow.sparsify(model, make(list(model.parameters())), density=0.3, steps=10)
    assert same_weights(model, before)


def test_what_grows_under_rprop_has_a_step_size():
    model, optimizer, handle = sparse_run(method="set", optimizer=lambda m: Rprop(m.parameters(), lr=0.01))
    train(model, optimizer, batches(3))
    before = {name: mask.clone() for name, mask in handle.masks.items()}
    train(model, optimizer, batches(1, seed=3))
    for (name, mask), sparse in zip(handle.masks.items(), handle.parameters, strict=True):
        sizes, born = optimizer.state[sparse.parameter]["step_size"], mask & ~before[name]
        assert born.any()
        assert torch.equal(sizes[born], torch.full_like(sizes[born], 0.01))


class Sharpness(torch.optim.Optimizer):
    """Sharpness-aware minimisation: gradients are those of the worst weights nearby."""

    def __init__(self, inner):
        self.base_optimizer = inner
        super().__init__(inner.param_groups, inner.defaults)

    @torch.no_grad()
    def step(self, closure):
        moved = [(value, 0.05 * value.grad) for group in self.param_groups for value in group["params"]]
        for value, move in moved:
            value.add_(move)
        with torch.enable_grad():
            loss = closure()
        for value, move in moved:
            value.sub_(move)
        self.base_optimizer.step()
        return loss


def test_sam_steps_its_sparsified_base_optimizer():
    model = small_net()
    optimizer = Sharpness(sgd(model))
    handle = regrow.sparsify(model, optimizer.base_optimizer, "set", density=0.3, steps=40, update_every=3)

    def closure():
        optimizer.zero_grad()
        loss = model(torch.ones(2, 12)).square().sum()
        loss.backward()
        return loss

    for _ in range(7):
        closure()
        optimizer.step(closure)
    assert (handle.step, handle.updates) == (7, 2)
    assert_sparse(handle)


def test_a_list_of_optimizers_and_sam_are_told_what_to_write():
    model = small_net()
    with pytest.raises(
        UnsupportedError, match=r"sparsify each part with its own, e\.g\. regrow\.sparsify\(model\.encoder"
    ):
        regrow.sparsify(model, [sgd(model), sgd(model)], density=0.3, steps=10)
    with pytest.raises(
        UnsupportedError, match=r"sparsify\(model, optimizer\.base_optimizer, \.\.\.\), and step as before"
    ):
        regrow.sparsify(model, Sharpness(sgd(model)), density=0.3, steps=10)
    part = sgd(model[0])
    with pytest.raises(ConfigurationError, match="or sparsify each part of the model with its own optimizer"):
        regrow.sparsify(model, part, density=0.3, steps=10)
