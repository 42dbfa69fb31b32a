"""Which weights exist: one immutable object that everything else is derived from."""

import copy
import pickle
import threading

import pytest
import torch
from torch import nn

import regrow
from regrow import native
from regrow.errors import ExecutionWarning, StateError
from regrow.support import Support
from regrow.training.traffic import SparseTraffic

needs_kernels = pytest.mark.skipif(not native.available(), reason="native kernels not built")
EXECUTIONS = ["masked", pytest.param("sparse", marks=needs_kernels)]


def random_support(*shape, density=0.3, seed=0):
    return Support(torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < density)


def test_views_agree():
    support = random_support(7, 5, 3)
    flat = support.mask.flatten()
    assert support.positions.tolist() == flat.nonzero().flatten().tolist()
    assert support.nnz == int(flat.sum())
    assert support.numel == 105
    assert support.bits.numel() == 14
    assert support.fingerprint() == random_support(7, 5, 3).fingerprint()
    assert support.fingerprint() != random_support(7, 5, 3, seed=1).fingerprint()


def test_every_one_has_its_own_version():
    first, second = random_support(3, 3), random_support(3, 3)
    assert first.version != second.version
    for twin in (copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
        assert twin.version != first.version
        assert torch.equal(twin.mask, first.mask)


def test_positions_are_logical_whatever_the_layout():
    support = random_support(4, 3, 2, 2)
    weight = torch.empty(4, 3, 2, 2).to(memory_format=torch.channels_last)
    laid = support.lies_like(weight)
    assert laid.mask.stride() == weight.stride()
    assert torch.equal(laid.positions, support.positions)
    assert laid.fingerprint() == support.fingerprint()
    assert laid.lies_like(weight) is laid


def test_what_is_derived_is_computed_once_for_all_threads():
    support, made, barrier = random_support(50, 50), [], threading.Barrier(8)

    def ask():
        barrier.wait()
        found.append(support.derive("x", lambda: made.append(1) or object()))

    found = []
    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert len({id(each) for each in found}) == 1


def test_only_bool_masks():
    with pytest.raises(TypeError, match=r"bool mask, got torch\.uint8"):
        Support(torch.ones(2, 2, dtype=torch.uint8))


def test_a_mask_that_somebody_wrote_to_is_refused():
    model = nn.Linear(6, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    handle = regrow.sparsify(model, optimizer, "static", density=0.5)
    next(iter(handle.masks.values())).view(-1)[0] ^= True
    model(torch.ones(2, 6)).sum().backward()
    with pytest.raises(StateError, match="somebody wrote into the mask of weight"):
        optimizer.step()


class TwoHeads(nn.Module):
    def __init__(self, kind):
        super().__init__()
        if kind == "layers":
            self.body = nn.ModuleList([nn.Linear(12, 16), nn.Linear(16, 16)])
        elif kind == "stack":
            self.body = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 16))
        else:
            self.body = nn.Conv2d(3, 16, 2)
        self.kind = kind
        self.heads = nn.ModuleList([nn.Linear(16, 3), nn.Linear(16, 3)])

    def forward(self, x):
        if self.kind == "layers":
            return torch.tanh(self.body[1](torch.tanh(self.body[0](x))))
        return torch.tanh(self.body(x.view(-1, 3, 2, 2)).flatten(1) if self.kind == "convolution" else self.body(x))


def kept_graph(kind, method, execution, compiled=False):
    """A loss whose graph outlives a topology update that replaces a weight step, its input, and that step."""
    torch.manual_seed(0)
    net = TwoHeads(kind).double()
    optimizer = torch.optim.SGD(net.parameters(), 0.01, 0.9)
    options = {"density": 0.3, "steps": 100, "update_every": 2, "distribution": "uniform"}
    handle = regrow.sparsify(net, optimizer, method, execution=execution, **options)
    run = torch.compile(net, backend="aot_eager") if compiled else net
    x = torch.randn(8, 12, dtype=torch.float64, requires_grad=True)
    for _ in range(2):
        optimizer.zero_grad()
        net.heads[0](run(x)).square().sum().backward()
        optimizer.step()
    first, second = (head(run(x)).square().sum() for head in net.heads)

    def update():
        optimizer.zero_grad()
        first.backward()
        before = handle.updates
        optimizer.step()
        assert handle.updates == before + 1

    return second, x, update


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("method", ["rigl", "srigl", "snfs-erk"])
@pytest.mark.parametrize("kind", ["layers", "stack", "convolution"])
def test_a_graph_that_outlives_a_topology_update_is_refused(kind, method, execution):
    loss, x, update = kept_graph(kind, method, execution)
    torch.autograd.grad(loss, x, retain_graph=True)  # before, it is not
    update()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(loss, x)


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_a_compiled_graph_that_outlives_a_topology_update_is_refused(execution):
    loss, x, update = kept_graph("layers", "rigl", execution, compiled=True)
    update()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(loss, x)


def test_traffic_follows_every_change_of_masks():
    torch.manual_seed(0)
    net = nn.Linear(6, 4, bias=False)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    handle = regrow.sparsify(net, optimizer, "static", density=0.25)
    saved, (name,) = handle.state_dict(), handle.masks
    traffic = SparseTraffic(handle)

    def is_right():
        return torch.equal(traffic.present(net.weight), handle.masks[name].flatten().nonzero().flatten())

    assert is_right()
    net.load_state_dict({"weight": torch.randn(4, 6) * (torch.arange(24).view(4, 6) % 2 == 0)})
    handle.masks_from_zeros()
    assert is_right()
    handle.load_state_dict(saved)
    assert is_right()


def what_the_weights_say(model, x):
    """The output by torch's own dense layers."""
    with torch.no_grad():
        y = x
        for module in model:
            y = nn.functional.linear(y, module.weight, module.bias) if isinstance(module, nn.Linear) else module(y)
    return y


def mlp(execution, seed):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    handle = regrow.sparsify(model, optimizer, density=0.3, steps=40, update_every=5, seed=seed, execution=execution)
    return model, optimizer, handle


@needs_kernels
@pytest.mark.parametrize("written", ["loaded", "initialised", "in place"])
def test_weights_outside_the_masks_are_evaluated_all_the_same(written):
    model, _, handle = mlp("sparse", 0)
    x = torch.randn(9, 12, dtype=torch.float64)
    model(x)
    with torch.no_grad():
        if written == "loaded":
            model.load_state_dict(mlp("sparse", 1)[0].state_dict())
        elif written == "initialised":
            nn.init.kaiming_normal_(model[0].weight)
        else:
            model[4].weight += 1
    with pytest.warns(ExecutionWarning, match="lie outside its mask, so its layer computes dense"):
        y = model(x)
    torch.testing.assert_close(y, what_the_weights_say(model, x))
    handle.masks_from_zeros()
    torch.testing.assert_close(model(x), what_the_weights_say(model, x))


@needs_kernels
def test_weights_loaded_with_their_masks_compute_sparse_at_once():
    model, optimizer, handle = mlp("sparse", 0)
    x = torch.randn(9, 12, dtype=torch.float64)
    for _ in range(6):
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
    other, _, others = mlp("sparse", 0)
    other.load_state_dict(model.state_dict())
    others.load_state_dict(handle.state_dict())
    assert torch.equal(other(x), model(x))  # bit for bit: the same kernels


@needs_kernels
def test_a_compiled_model_refuses_weights_outside_its_masks():
    model, _, _ = mlp("sparse", 0)
    x = torch.randn(9, 12, dtype=torch.float64)
    compiled = torch.compile(model, backend="aot_eager")
    compiled(x)
    model.load_state_dict(mlp("sparse", 1)[0].state_dict())
    with pytest.raises(StateError, match="lie outside its mask"):
        compiled(x)
