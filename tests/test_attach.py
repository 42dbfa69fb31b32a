"""Handles on optimizers: closures, states loaded, what leaves and what is lost, and optimizers that must not step sparse weights."""

import copy
import gc
import weakref

import pytest
import torch
from torch import nn
from torch.optim import SGD

import regrow
from regrow.errors import StateError, UnsupportedError
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


def test_two_handles_do_not_meet():
    runs = [sparse_run(seed=seed) for seed in (0, 1)]
    for batch in batches(9):
        for model, optimizer, _ in runs:
            train(model, optimizer, [batch])
    alone_model, alone_optimizer, alone = sparse_run(seed=1)
    train(alone_model, alone_optimizer, batches(9))
    assert torch.equal(bits(runs[1][2]), bits(alone))
    assert same_weights(runs[1][0], alone_model)


@pytest.mark.parametrize("as_keyword", [False, True])
@pytest.mark.parametrize("method", ["sparse-momentum", "rigl", "top-kast"])
def test_a_closure_equals_the_plain_loop_bit_for_bit(method, as_keyword):
    plain, plain_optimizer, plain_handle = sparse_run(method=method)
    closed, optimizer, handle = sparse_run(method=method)
    data = batches(14)
    train(plain, plain_optimizer, data)
    for batch in data:

        def closure(batch=batch):
            optimizer.zero_grad()
            loss = loss_of(closed, batch)
            loss.backward()
            return loss

        loss = optimizer.step(closure=closure) if as_keyword else optimizer.step(closure)
        assert loss.requires_grad
    assert torch.equal(bits(handle), bits(plain_handle))
    assert handle.step == plain_handle.step == 14
    assert same_weights(plain, closed)


def test_sparsify_twice_is_refused():
    model, optimizer, handle = sparse_run()
    before = bits(handle).clone()
    with pytest.raises(StateError, match=r"already.*detach"):
        regrow.sparsify(model, optimizer, density=0.5, steps=10)
    with pytest.raises(StateError, match=r"0\.weight is sparsified already.*detach"):
        regrow.sparsify(model, sgd(model), density=0.5, steps=10)
    assert torch.equal(bits(handle), before)
    assert_sparse(handle)
    train(model, optimizer, batches(5))
    assert handle.updates == 1


def test_another_optimizer_on_the_same_weights_is_refused():
    model, optimizer, handle = sparse_run()
    train(model, optimizer, batches(2))
    loss_of(model, batches(1)[0]).backward()
    frozen = [p.detach().clone() for p in model.parameters()]
    for stranger in (copy.copy(optimizer), sgd(model)):
        with pytest.raises(StateError, match=r"SGD steps weights that were sparsified with another optimizer.*detach"):
            stranger.step()
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), frozen, strict=True))
    assert handle.step == 2


def test_an_optimizer_of_other_parameters_is_not_disturbed():
    _, _, handle = sparse_run()
    other = small_net(3)
    train(other, sgd(other), batches(2))
    assert handle.step == 0


def test_detach_leaves_an_ordinary_model():
    model, optimizer, handle = sparse_run()
    train(model, optimizer, batches(6))
    frozen = bits(handle).clone()
    handle.detach()
    handle.detach()
    assert regrow.handle_of(optimizer) is None
    train(model, optimizer, batches(6, seed=3))
    assert handle.step == 6
    assert torch.equal(bits(handle), frozen)
    assert model[0].weight.count_nonzero() == model[0].weight.numel()
    train(model, sgd(model), batches(1))
    again = regrow.sparsify(model, optimizer, density=0.2, steps=10, update_every=5, start="random")
    assert_sparse(again)


def test_handle_of_sees_through_wrappers():
    model, optimizer, handle = sparse_run()

    class Wrapper:
        def __init__(self, inner):
            self.optimizer = inner

    assert regrow.handle_of(optimizer) is handle
    assert regrow.handle_of(Wrapper(optimizer)) is handle
    assert regrow.handle_of(sgd(model)) is None


def test_optimizer_state_loaded_into_place_goes_on():
    runs = [sparse_run() for _ in range(2)]
    for model, optimizer, _ in runs:
        train(model, optimizer, batches(6))
    model, optimizer, handle = runs[0]
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for m, o, _ in runs:
        train(m, o, batches(7, seed=2))
    assert handle.updates == 3
    assert same_weights(model, runs[1][0])
    assert_sparse(handle)


def test_optimizer_state_of_other_masks_is_masked():
    model, optimizer, handle = sparse_run()
    train(model, optimizer, batches(2))
    dense = small_net()
    dense_optimizer = sgd(dense)
    train(dense, dense_optimizer, batches(3))
    optimizer.load_state_dict(dense_optimizer.state_dict())
    assert optimizer.state[model[0].weight]["momentum_buffer"].count_nonzero() == 16 * 12
    train(model, optimizer, batches(1))
    assert_sparse(handle)


def test_nothing_leaks():
    def run():
        model, optimizer, handle = sparse_run()
        train(model, optimizer, batches(5))
        copied = copy.deepcopy((optimizer, model))
        return [weakref.ref(thing) for thing in (model, optimizer, handle, *copied, model[0].weight)]

    remains = run()
    gc.collect()
    assert [reference() for reference in remains] == [None] * len(remains)


def test_a_lost_optimizer_is_named():
    model = small_net()
    handle = regrow.sparsify(model, sgd(model), density=0.3, steps=10, update_every=5)
    gc.collect()
    with pytest.raises(StateError, match=r"optimizer of 0\.weight is gone"):
        _ = handle.optimizer


def test_a_state_is_refused_whole_where_the_optimizer_is_lost():
    model, optimizer, trained = sparse_run()
    train(model, optimizer, batches(5))
    other = small_net()
    handle = regrow.sparsify(other, sgd(other), density=0.3, steps=10, update_every=5)
    gc.collect()
    before = {name: mask.clone() for name, mask in handle.masks.items()}
    with pytest.raises(StateError, match="is gone"):
        handle.load_state_dict(trained.state_dict())
    assert handle.step == 0
    assert all(torch.equal(mask, before[name]) for name, mask in handle.masks.items())


def test_gradients_of_unsparsified_modules_pass_untouched():
    torch.manual_seed(0)
    model = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(4, 4)})
    optimizer = sgd(model)
    regrow.sparsify(model, optimizer, density=0.25, steps=10, update_every=5, scope=["b"])
    model["b"](model["a"](torch.randn(3, 4))).sum().backward()
    assert model["b"].weight.grad.count_nonzero() == 16
    assert model["a"].weight.grad.count_nonzero() <= 4


class Twice(SGD):
    """Looks at the loss before and after."""

    def step(self, closure=None):
        closure()
        super().step()
        return closure()


def test_a_closure_evaluated_twice_is_refused():
    model = small_net()
    optimizer = Twice(model.parameters(), lr=0.1)
    regrow.sparsify(model, optimizer, "rigl", density=0.3, steps=40, update_every=3)
    (batch,) = batches(1)

    def closure():
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        return loss

    with pytest.raises(UnsupportedError, match="Twice evaluates its closure more than once"):
        optimizer.step(closure)


def test_a_handle_may_leave_inside_a_closure():
    model, optimizer, handle = sparse_run()
    (batch,) = batches(1)

    def closure():
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        handle.detach()
        return loss

    assert optimizer.step(closure).isfinite()
    assert handle.step == 0


@pytest.mark.parametrize("place", ["0", "2"])
def test_a_replaced_layer_is_noticed_at_the_next_step(place):
    model, optimizer, handle = sparse_run()
    train(model, optimizer, batches(1))
    setattr(model, place, nn.Linear(model[int(place)].in_features, model[int(place)].out_features))
    with pytest.raises(StateError, match=rf"no longer the {place}\.weight that was sparsified"):
        train(model, optimizer, batches(1))
    assert handle.step == 1


def test_setting_the_density_says_what_to_do():
    _, _, handle = sparse_run()
    with pytest.raises(
        StateError, match=r"density cannot be set: handle\.detach\(\).*density=0\.1 and start='magnitude'"
    ):
        handle.density = 0.1
