"""copy.deepcopy in any order: copies train sparse, like the original and independently of it."""

import copy
import io
import pickle
import subprocess
import sys
from operator import itemgetter

import pytest
import torch
from torch import nn

import regrow
from regrow.errors import StateError
from tests.support.training import assert_sparse, batches, bits, loss_of, same_weights, sparse_run, train

ORDERS = {
    "model, optimizer": lambda m, o, h: copy.deepcopy((m, o)),
    "optimizer, model": lambda m, o, h: copy.deepcopy((o, m))[::-1],
    "model, optimizer, handle": lambda m, o, h: copy.deepcopy((m, o, h))[:2],
    "handle, model, optimizer": lambda m, o, h: copy.deepcopy((h, m, o))[1:],
    "optimizer, handle, model": lambda m, o, h: copy.deepcopy((o, h, m))[::-2],
    "dictionary": lambda m, o, h: itemgetter("m", "o")(copy.deepcopy({"o": o, "h": h, "m": m})),
}


@pytest.mark.parametrize("order", [*ORDERS, "handle, optimizer"])
@pytest.mark.parametrize("method", ["sparse-momentum", "top-kast", "rigl"])
def test_copies_continue_bit_for_bit(order, method):
    model, optimizer, handle = sparse_run(method=method, window_tolerance=0)
    train(model, optimizer, batches(6))
    if order == "handle, optimizer":
        twin = copy.deepcopy((handle, optimizer))
        copied, copied_optimizer = twin[0].model, twin[1]
    else:
        copied, copied_optimizer = ORDERS[order](model, optimizer, handle)
    copied_handle = regrow.handle_of(copied_optimizer)
    frozen = bits(copied_handle).clone()
    train(model, optimizer, batches(9, seed=2))
    assert copied_handle.step == 6
    assert torch.equal(bits(copied_handle), frozen)
    assert copied_handle is not handle
    train(copied, copied_optimizer, batches(9, seed=2), lambda: _holds(copied_handle))
    assert copied_handle.step == handle.step == 15
    assert copied_handle.updates == handle.updates
    assert torch.equal(bits(copied_handle), bits(handle))
    assert same_weights(model, copied)
    assert copied_handle.model is copied


def _holds(handle):
    if handle.method.weighting is None:
        assert_sparse(handle)
    else:
        assert handle.nonzeros == handle.budget


def test_the_copied_handle_belongs_to_the_copies():
    model, optimizer, handle = sparse_run()
    copied, copied_optimizer, copied_handle = copy.deepcopy((model, optimizer, handle))
    assert regrow.handle_of(copied_optimizer) is copied_handle
    assert copied_handle.model is copied
    assert copied_handle.optimizer is copied_optimizer
    assert copied_handle.parameters[0].parameter is copied[0].weight
    assert copied_handle.network.layers[0].module is copied[0]


def test_layers_frozen_meanwhile_can_be_copied_and_thawed():
    model, optimizer, _ = sparse_run()
    train(model, optimizer, batches(5))
    model[2].weight.requires_grad_(False)
    copied, copied_optimizer = copy.deepcopy((model, optimizer))
    handle = regrow.handle_of(copied_optimizer)
    assert not copied[2].weight.requires_grad
    before = handle.masks["2"].clone()
    train(copied, copied_optimizer, batches(4))
    assert torch.equal(handle.masks["2"], before)
    copied[2].weight.requires_grad_(True)
    train(copied, copied_optimizer, batches(8), lambda: assert_sparse(handle))
    assert not torch.equal(handle.masks["2"], before)


def test_copies_of_copies():
    model, optimizer, handle = sparse_run()
    first = copy.deepcopy((model, optimizer))
    second = copy.deepcopy(first)
    train(model, optimizer, batches(9))
    train(*second, batches(9))
    assert same_weights(model, second[0])
    assert torch.equal(bits(regrow.handle_of(second[1])), bits(handle))


def test_a_module_that_holds_its_own_optimizer_and_handle():
    class Agent(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.optimizer, self.handle = sparse_run()

    agent = Agent()
    twin = copy.deepcopy(agent)
    train(twin.net, twin.optimizer, batches(5))
    assert twin.handle.updates == 1
    assert twin.handle.model is twin.net
    assert agent.handle.step == 0


def test_a_single_layer_model_with_its_handle_inside():
    layer = nn.Linear(12, 3)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    layer.handle = regrow.sparsify(layer, optimizer, density=0.25, steps=40, update_every=2)
    twin, twin_optimizer = copy.deepcopy((layer, optimizer))
    train(twin, twin_optimizer, batches(5))
    assert twin.handle.model is twin
    assert twin.handle.updates == 2


def test_an_optimizer_copied_alone_refuses_to_step():
    model, optimizer, handle = sparse_run()
    train(model, optimizer, batches(2))
    orphan = copy.deepcopy(optimizer)
    with pytest.raises(StateError, match=r"copied without its model.*copy\.deepcopy\(\(model, optimizer, handle\)\)"):
        orphan.step()
    train(model, optimizer, batches(3))
    assert handle.updates == 1


def test_a_model_copied_alone_is_an_ordinary_model():
    model, optimizer, handle = sparse_run()
    copied = copy.deepcopy(model)
    other = torch.optim.SGD(copied.parameters(), lr=0.1)
    train(copied, other, batches(2))
    assert copied[0].weight.count_nonzero() > model[0].weight.count_nonzero()
    copied.load_state_dict(model.state_dict())
    assert not handle.unverified
    train(model, optimizer, batches(1))
    assert_sparse(handle)


def test_models_can_be_pickled_whole():
    model, optimizer, _ = sparse_run()
    train(model, optimizer, batches(5))
    again = pickle.loads(pickle.dumps(model))
    assert same_weights(model, again)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    loaded.load_state_dict(model.state_dict())
    assert torch.equal(loss_of(loaded, batches(1)[0]), loss_of(model, batches(1)[0]))


def pickled(*parts):
    file = io.BytesIO()
    torch.save(parts, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def test_a_pickled_optimizer_refuses_to_train_dense():
    model, optimizer, handle = sparse_run()
    train(model, optimizer, batches(5))
    loaded, its_optimizer = pickled(model, optimizer)
    assert same_weights(loaded, model)
    with pytest.raises(
        StateError, match=r"sparsified when it was pickled.*state_dict\(\) of model, optimizer and handle"
    ):
        train(loaded, its_optimizer, batches(1))
    assert same_weights(loaded, model)
    train(model, optimizer, batches(5))
    assert_sparse(handle)


def test_a_pickled_optimizer_can_be_sparsified_again_with_masks_from_the_zeros():
    model, optimizer, _ = sparse_run()
    train(model, optimizer, batches(5))
    loaded, its_optimizer = pickled(model, optimizer)
    again = regrow.sparsify(loaded, its_optimizer, steps=40, update_every=4, start="zeros")
    assert same_weights(loaded, model)
    train(loaded, its_optimizer, batches(5), lambda: assert_sparse(again))
    assert again.updates == 1
    twin, twin_optimizer = copy.deepcopy((loaded, its_optimizer))
    train(twin, twin_optimizer, batches(1), lambda: assert_sparse(regrow.handle_of(twin_optimizer)))


def test_a_detached_optimizer_is_pickled_as_an_ordinary_one():
    model, optimizer, handle = sparse_run()
    handle.detach()
    loaded, its_optimizer = pickled(model, optimizer)
    before = loaded[0].weight.detach().clone()
    train(loaded, its_optimizer, batches(1))
    assert not torch.equal(loaded[0].weight, before)
    assert regrow.handle_of(its_optimizer) is None


def test_a_process_that_never_heard_of_regrow_is_told_too(tmp_path):
    _, optimizer, _ = sparse_run()
    torch.save(optimizer, tmp_path / "optimizer.pt")
    program = "import sys, torch; torch.load(sys.argv[1], weights_only=False).step()"
    ended = subprocess.run([sys.executable, "-c", program, tmp_path / "optimizer.pt"], capture_output=True, text=True)
    assert ended.returncode == 1
    assert "StateError" in ended.stderr
    assert "sparsified when it was pickled" in ended.stderr
