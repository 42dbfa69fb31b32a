"""The handle around whole runs: averages over time, non-finite numbers, compiled models, custom criteria."""

import copy

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel

import regrow
from regrow.errors import ConfigurationError, NonFiniteError, StateError
from tests.support.training import assert_sparse, batches, bits, loss_of, sgd, small_net, sparse_run, train


def test_properties_and_repr():
    model, optimizer, handle = sparse_run()
    assert handle.numel == 12 * 16 + 16 * 8 + 8 * 3
    assert handle.nonzeros == handle.budget == round(0.3 * handle.numel)
    assert handle.density == pytest.approx(0.3, abs=2e-3)
    assert handle.prune_rate == pytest.approx(0.2)
    assert handle.optimizer is optimizer
    assert handle.model is model
    assert repr(handle) == "Handle(sparse-momentum, 103 of 344 weights, step 0, 0 topology updates)"
    train(model, optimizer, batches(5))
    assert repr(handle) == "Handle(sparse-momentum, 103 of 344 weights, step 5, 1 topology updates)"
    assert handle.prune_rate < 0.2
    assert [record.step for record in handle.journal] == [4]
    assert {name: tuple(mask.shape) for name, mask in handle.masks.items()} == {
        "0": (16, 12),
        "2": (8, 16),
        "4": (3, 8),
    }


@pytest.mark.parametrize("depth", [1, 2])
def test_averages_over_time_are_masked_on_request(depth):
    model, optimizer, handle = sparse_run()
    average = AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.5))
    for _ in range(depth - 1):
        average = AveragedModel(average)
    scheduler = SWALR(optimizer, swa_lr=0.05)
    for batch in batches(9):
        train(model, optimizer, [batch])
        scheduler.step()
        average.update_parameters(model if depth == 1 else average.module)
        if depth == 2:
            average.module.update_parameters(model)
    inner = average.module if depth == 1 else average.module.module
    assert (inner[0].weight * ~handle.masks["0"]).any(), "the average of moving masks is not sparse by itself"
    kept = inner[0].weight.detach() * handle.masks["0"]
    assert handle.mask_(average) is average
    assert torch.equal(inner[0].weight, kept)
    assert not (inner[2].weight * ~handle.masks["2"]).any()


def test_missing_weights_of_a_copy_and_of_optimizer_state_become_zero_whatever_they_were():
    model, optimizer, handle = sparse_run()
    train(model, optimizer, batches(1))
    twin, missing = copy.deepcopy(model), ~handle.masks["0"]
    slot = optimizer.state[model[0].weight]["momentum_buffer"]
    with torch.no_grad():
        twin[0].weight[missing] = float("inf")
        slot[missing] = float("nan")
    handle.mask_(twin)
    handle.parameters[0].mask_state()
    assert not twin[0].weight[missing].any()
    assert not slot[missing].any()


def test_masking_a_stranger_is_refused():
    _, _, handle = sparse_run()
    other = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 9))
    before = copy.deepcopy(other.state_dict())
    with pytest.raises(StateError, match=r"no parameter 2\.weight of shape \(8, 16\): pass a copy of the same model"):
        handle.mask_(other)
    assert all(torch.equal(before[name], value) for name, value in other.state_dict().items())


@pytest.mark.parametrize(
    ("method", "poison", "what"),
    [
        ("sparse-momentum", "gradient", "weight|momentum"),
        ("sparse-momentum", "missing gradient", "momentum of layer 2"),
        ("rigl", "missing gradient", "gradient of layer 2"),
        ("set", "weight", "weight of layer 2"),
        ("sparse-momentum", "momentum", "(weight|momentum) of layer 2"),
    ],
)
def test_non_finite_numbers_stop_an_update(method, poison, what):
    model, optimizer, handle = sparse_run(method=method, window_tolerance=0)
    train(model, optimizer, batches(7))
    updates, masks, journal = handle.updates, bits(handle).clone(), len(handle.journal)
    with pytest.raises(NonFiniteError, match=rf"({what}).*\(step 8\): masks were left as they are"):
        _poisoned_steps(model, optimizer, handle, poison)
    assert handle.updates == updates
    assert len(handle.journal) == journal
    assert torch.equal(bits(handle), masks)


def _poisoned_steps(model, optimizer, handle, poison):
    for batch in batches(2, seed=4):
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        _poison(poison, model[2].weight, handle)
        optimizer.step()


def _poison(what, weight, handle):
    mask = handle.masks["2"]
    place = tuple((~mask).nonzero()[0]) if what == "missing gradient" else tuple(mask.nonzero()[0])
    if what == "gradient":
        weight.grad[place] = float("nan")
    elif what == "weight":
        weight.data[place] = float("inf")
    elif what == "momentum":
        handle.optimizer.state[weight]["momentum_buffer"][place] = float("nan")
    elif handle.parameters[1].incoming is not None:
        handle.parameters[1].incoming[place] = float("nan")


@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize("method", ["sparse-momentum", "rigl"])
def test_compiled_models_never_recompile(order, method):
    torch._dynamo.reset()
    graphs = 0

    def count(graph, inputs):
        nonlocal graphs
        graphs += 1
        return graph.forward

    plain, plain_optimizer, plain_handle = sparse_run(method=method, steps=60, update_every=2)
    model = small_net()
    optimizer = sgd(model)
    arguments = {"method": method, "density": 0.3, "steps": 60, "update_every": 2}
    if order == "before":
        compiled = torch.compile(model, backend=count)
        handle = regrow.sparsify(compiled, optimizer, **arguments)
    else:
        handle = regrow.sparsify(model, optimizer, **arguments)
        compiled = torch.compile(model, backend=count)
    data = batches(23)
    train(plain, plain_optimizer, data)
    with torch._dynamo.config.patch(error_on_recompile=True):
        train(compiled, optimizer, data, lambda: assert_sparse(handle))
    assert graphs == 1
    assert handle.updates >= 10
    assert handle.model is model
    assert torch.equal(bits(handle), bits(plain_handle))


def test_compiled_backward_delivers_missing_gradients():
    torch._dynamo.reset()
    model, optimizer, handle = sparse_run(update_every=2)
    compiled = torch.compile(model, backend="aot_eager")
    plain, plain_optimizer, plain_handle = sparse_run(update_every=2)
    with torch._dynamo.config.patch(error_on_recompile=True):
        train(compiled, optimizer, batches(7), lambda: assert_sparse(handle))
    train(plain, plain_optimizer, batches(7))
    assert handle.updates == 3
    assert torch.equal(bits(handle), bits(plain_handle))


def test_rigl_updates_masks_instead_of_weights():
    model, optimizer, handle = sparse_run(method="rigl", update_every=3)
    train(model, optimizer, batches(3))
    mask, weight, bias = handle.masks["2"].clone(), model[2].weight.detach().clone(), model[2].bias.detach().clone()
    optimizer.zero_grad()
    loss_of(model, batches(1, seed=5)[0]).backward()
    grads = [p.grad for p in model.parameters()]
    optimizer.step()
    stayed = mask & handle.masks["2"]
    assert torch.equal(model[2].weight.detach()[stayed], weight[stayed])
    assert torch.equal(model[2].bias, bias)
    assert not torch.equal(mask, handle.masks["2"])
    assert all(p.grad is g for p, g in zip(model.parameters(), grads, strict=True))


def test_own_criteria_replace_the_methods():
    called = set()

    def prune(layer):
        called.add("prune")
        return layer.weight.abs()

    def share(layer):
        called.add("share")
        return 1.0

    @regrow.needs("gradient")
    def grow(layer):
        called.add("grow")
        return layer.gradient.abs()

    model, optimizer, handle = sparse_run(prune=prune, redistribute=share, grow=grow)
    train(model, optimizer, batches(9), lambda: assert_sparse(handle))
    assert called == {"prune", "share", "grow"}
    assert handle.updates == 2


def test_rewind_belongs_to_rounds():
    _, _, handle = sparse_run()
    with pytest.raises(ConfigurationError, match=r"no rounds.*lottery-ticket"):
        handle.rewind()


def test_lottery_rounds_drive_the_density_down():
    model, optimizer, handle = sparse_run(method="lottery-ticket", density=0.5)
    start = model[0].weight.detach().clone()
    rounds = 0
    while True:
        train(model, optimizer, batches(3))
        if not handle.rewind():
            break
        rounds += 1
        assert torch.equal(model[0].weight.detach(), start * handle.masks["0"])
        assert handle.step == 0
    assert rounds == 4
    assert handle.nonzeros == round(0.5 * handle.numel)
