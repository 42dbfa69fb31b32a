"""Saved state: whole, plain, and checked before anything changes."""

import copy
import io

import pytest
import torch
from torch import nn

import regrow
from regrow import native
from regrow.errors import StateError
from regrow.topology.journal import unpack
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

needs_kernels = pytest.mark.skipif(not native.available(), reason="native kernels not built")
METHODS = ["sparse-momentum", "set", "rigl", "dsr", "deep-r", "top-kast", "soft-deep-r"]


def saved(model, optimizer, handle):
    file = io.BytesIO()
    torch.save({"m": model.state_dict(), "o": optimizer.state_dict(), "h": handle.state_dict()}, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("order", ["mh", "hm"])
@pytest.mark.parametrize("execution", ["masked", pytest.param("sparse", marks=needs_kernels)])
def test_resume_in_either_order_is_bit_identical(method, order, execution):
    model, optimizer, handle = sparse_run(method=method, execution=execution)
    train(model, optimizer, batches(6))
    state = saved(model, optimizer, handle)
    train(model, optimizer, batches(7, seed=2))
    fresh, fresh_optimizer, fresh_handle = sparse_run(seed=9, method=method, execution=execution)
    for part in order:
        (fresh if part == "m" else fresh_handle).load_state_dict(state[part])
    fresh_optimizer.load_state_dict(state["o"])
    train(fresh, fresh_optimizer, batches(7, seed=2))
    assert fresh_handle.step == 13
    assert torch.equal(bits(fresh_handle), bits(handle))
    assert same_weights(fresh, model)
    assert [r.as_dict() for r in fresh_handle.journal] == [r.as_dict() for r in handle.journal]


def test_state_is_a_copy():
    model, optimizer, handle = sparse_run(window_tolerance=0)
    train(model, optimizer, batches(3))
    state = handle.state_dict()
    frozen = copy.deepcopy(state)
    train(model, optimizer, batches(6))
    assert state["step"] == 3
    assert torch.equal(state["masks"]["0.weight"], frozen["masks"]["0.weight"])
    assert torch.equal(state["parameters"]["0.weight"]["first"], frozen["parameters"]["0.weight"]["first"])


@pytest.mark.parametrize("method", ["sparse-momentum", "top-kast"])
def test_weights_loaded_alone_stop_the_next_step(method):
    model, optimizer, handle = sparse_run(method=method)
    train(model, optimizer, batches(2))
    loss_of(model, batches(1)[0]).backward()
    model.load_state_dict(small_net(5).state_dict())
    loaded, step = copy.deepcopy(model.state_dict()), handle.step
    with pytest.raises(
        StateError, match=r"\d+ weights of 0\.weight .*outside its mask.*handle\.load_state_dict.*masks_from_zeros"
    ):
        optimizer.step()
    assert handle.step == step
    assert all(torch.equal(loaded[name], value) for name, value in model.state_dict().items())


def test_a_submodule_loaded_alone_is_noticed_too():
    model, optimizer, _ = sparse_run()
    model[2].load_state_dict(nn.Linear(16, 8).state_dict())
    with pytest.raises(StateError, match=r"weights of 2\.weight"):
        optimizer.step()


def test_weights_that_fit_the_masks_are_welcome():
    model, optimizer, handle = sparse_run()
    train(model, optimizer, batches(2))
    model.load_state_dict(model.state_dict())
    train(model, optimizer, batches(3))
    assert handle.step == 5


def test_shadow_weights_do_not_silently_win_over_loaded_ones():
    model, optimizer, _ = sparse_run(method="top-kast")
    train(model, optimizer, batches(2))
    model.load_state_dict({name: 2 * value for name, value in model.state_dict().items()})
    with pytest.raises(StateError, match="weights and masks are of different states"):
        optimizer.step()


@pytest.mark.parametrize("method", ["sparse-momentum", "top-kast", "rigl"])
def test_masks_from_zeros(method):
    model, optimizer, handle = sparse_run(method=method)
    train(model, optimizer, batches(2))
    other = sparse_run(seed=5, density=0.2)[0]
    model.load_state_dict(other.state_dict())
    handle.masks_from_zeros()
    assert torch.equal(handle.masks["2"], other[2].weight != 0)
    assert handle.nonzeros == handle.budget == sum(int((m.weight != 0).sum()) for m in other[::2])
    for history in (handle.network.start_masks, handle.network.ever_masks):
        for bits_then, mask in zip(history, handle.masks.values(), strict=True):
            assert torch.equal(unpack(bits_then, mask.shape), mask)
    budget = handle.nonzeros
    optimizer.zero_grad()
    loss_of(model, batches(1)[0]).backward()
    optimizer.step()
    assert handle.nonzeros == budget
    train(model, optimizer, batches(9))
    assert handle.nonzeros == budget
    if method != "top-kast":
        assert_sparse(handle)


@pytest.mark.parametrize("execution", ["masked", pytest.param("sparse", marks=needs_kernels)])
@pytest.mark.parametrize("method", ["deep-r", "top-kast"])
def test_masks_from_zeros_are_those_that_the_method_goes_on_with(method, execution):
    model, optimizer, handle = sparse_run(method=method, execution=execution, optimizer=lambda m: sgd(m, lr=1e-6))
    other, *_ = sparse_run(seed=5, method="static")
    model.load_state_dict(other.state_dict())
    handle.masks_from_zeros()
    before = [p.detach().clone() for p in model.parameters()]
    assert all(sparse.reach is None or bool(sparse.reach.mask[sparse.mask].all()) for sparse in handle.parameters)
    train(model, optimizer, batches(1))
    for old, new in zip(before, model.parameters(), strict=True):
        torch.testing.assert_close(old, new, rtol=0, atol=1e-4, msg="none of the weights was dropped")


def test_masks_from_zeros_set_the_budget_of_a_constant_density_rule():
    model, optimizer, handle = sparse_run(method="srigl", density=0.2, update_every=2)
    model.load_state_dict(sparse_run(seed=5, density=0.6, method="static")[0].state_dict())
    handle.masks_from_zeros()
    budget = handle.budget
    assert budget == handle.nonzeros > 2 * handle.numel * 0.2
    train(model, optimizer, batches(5))
    assert handle.updates > 0
    assert handle.budget == budget
    assert 0.8 * budget < handle.nonzeros <= budget


def test_masks_from_zeros_leave_a_schedule_its_end():
    model, optimizer, handle = sparse_run(method="granet", density=0.2, steps=20, update_every=2, start_density=0.9)
    model.load_state_dict(sparse_run(seed=5, density=0.6, method="static")[0].state_dict())
    handle.masks_from_zeros()
    train(model, optimizer, batches(18))
    assert handle.nonzeros == handle.budget == round(0.2 * handle.numel)


def test_masks_from_zeros_need_a_weight_in_every_layer():
    model, _, handle = sparse_run()
    before = bits(handle).clone()
    model[2].weight.data.zero_()
    with pytest.raises(StateError, match="layer 2 has no non-zero weight"):
        handle.masks_from_zeros()
    assert torch.equal(bits(handle), before)


def test_assigned_parameters_are_noticed():
    model, optimizer, _ = sparse_run()
    model.load_state_dict(copy.deepcopy(model.state_dict()), assign=True)
    with pytest.raises(StateError, match=r"no longer the 0\.weight.*assign"):
        optimizer.step()


def other_shape():
    model = nn.Sequential(nn.Linear(16, 12), nn.Tanh(), nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 3))
    optimizer = sgd(model)
    return regrow.sparsify(model, optimizer, density=0.3, steps=40, update_every=4), optimizer


def other_layers():
    model = small_net()
    optimizer = sgd(model)
    return regrow.sparsify(model, optimizer, density=0.3, steps=40, update_every=4, scope=["4"]), optimizer


def edited(**changes):
    _, optimizer, handle = sparse_run()
    return {**handle.state_dict(), **changes}, optimizer


def damaged():
    state, optimizer = edited()
    state["masks"]["2.weight"] = state["masks"]["2.weight"][:-1]
    return state, optimizer


def without(key):
    _, optimizer, handle = sparse_run()
    state = handle.state_dict()
    del state[key]
    return state, optimizer


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sparse_run(method="set")[2:0:-1], "saved run has method = 'set', this one 'sparse-momentum'"),
        (
            lambda: sparse_run(density=0.2)[2:0:-1],
            "density = 0.2, this one 0.3: sparsify with the same .*start='zeros'",
        ),
        (lambda: sparse_run(steps=50)[2:0:-1], "steps = 50, this one 40"),
        (other_shape, r"0\.weight has shape \(12, 16\) in the saved state, \(16, 12\) in this model"),
        (other_layers, r"layer 4\.weight exists only in the model"),
        (lambda: edited(ever_masks={}), "saved ever_masks do not fit layer 0"),
        (damaged, r"saved mask of 2\.weight has 15 bytes instead of 16: the state is damaged"),
        (lambda: edited(version=99), "format 99 cannot be read by this release, which reads format 1"),
        (lambda: without("window_steps"), "not a handle's state: window_steps missing"),
        (
            lambda: ({"0.weight": 1}, None),
            r"state: counts, ever_masks, identity and \d+ more missing; save handle\.state_dict",
        ),
        (lambda: ("text", None), "not a handle's state"),
    ],
)
def test_state_that_does_not_fit_changes_nothing(make, message):
    model, optimizer, handle = sparse_run()
    train(model, optimizer, batches(5))
    before, weights = copy.deepcopy(handle.state_dict()), copy.deepcopy(model.state_dict())
    source, _keep = make()
    state = source.state_dict() if isinstance(source, regrow.Handle) else source
    with pytest.raises(StateError, match=message):
        handle.load_state_dict(state)
    after = handle.state_dict()
    assert after["step"] == before["step"] == 5
    assert all(torch.equal(after["masks"][name], mask) for name, mask in before["masks"].items())
    assert all(torch.equal(weights[name], value) for name, value in model.state_dict().items())
    train(model, optimizer, batches(4))
    assert handle.updates == 2
