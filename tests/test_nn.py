"""Layers that exist only sparse."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import regrow
from regrow.errors import ConfigurationError, UnsupportedError
from regrow.nn import SparseLinear, materialise

COMPACT = {"execution": "sparse", "storage": "compact"}


def train(model, steps=6, features=20, **arguments):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    handle = regrow.sparsify(model, optimizer, steps=steps, update_every=2, **{**COMPACT, **arguments})
    source = torch.Generator().manual_seed(0)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, features, generator=source)).square().mean().backward()
        optimizer.step()
    return handle


def test_a_layer_computes_as_its_dense_weight_says():
    layer = SparseLinear(20, 12, density=0.3)
    x = torch.randn(5, 20)
    torch.testing.assert_close(layer(x), nn.functional.linear(x, layer.weight, layer.bias))
    assert int((layer.weight != 0).sum()) == round(0.3 * 240) == layer._parameters["weight"].numel()
    assert float(layer.weight.detach().abs().max()) <= 20**-0.5  # the dense layer's fan-in
    assert isinstance(layer, nn.Linear)


@pytest.mark.parametrize(
    ("inputs", "outputs", "density"), [(3000, 50, 2e-3), (70_001, 9, 5e-4), (7, 70_001, 5e-4), (400, 300, 0.6)]
)
def test_thin_and_large_layers_have_the_gradients_of_dense_ones(inputs, outputs, density):
    layer = SparseLinear(inputs, outputs, density, dtype=torch.float64)
    x = torch.randn(5, inputs, dtype=torch.float64, requires_grad=True)
    weight, bias = (p.detach().clone().requires_grad_() for p in (layer.weight, layer.bias))
    twin = x.detach().clone().requires_grad_()
    y, expected = layer(x), nn.functional.linear(twin, weight, bias)
    torch.testing.assert_close(y, expected)
    grad = torch.randn_like(y)
    y.backward(grad)
    expected.backward(grad)
    torch.testing.assert_close(x.grad, twin.grad)
    torch.testing.assert_close(layer.bias.grad, bias.grad)
    torch.testing.assert_close(layer._parameters["weight"].grad, weight.grad[weight != 0])


def test_its_weight_is_found_by_name_and_refused_where_it_is_too_large():
    model = nn.Sequential(SparseLinear(20, 12, density=0.3))
    assert torch.equal(model.get_parameter("0.weight"), model[0].weight)
    assert model.get_parameter("0.weight").shape == (12, 20)
    large = SparseLinear(50_000, 50_000, density=1e-8)
    with pytest.raises(UnsupportedError, match="too large to be shown dense"):
        _ = large.weight


def test_without_a_handle_it_trains_with_its_own_mask():
    layer = SparseLinear(20, 12, density=0.3)
    before = layer.weight.detach() != 0
    optimizer = torch.optim.Adam(layer.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        layer(torch.randn(5, 20)).square().mean().backward()
        optimizer.step()
    assert torch.equal(layer.weight != 0, before)


@pytest.mark.parametrize("method", ["set", "rigl", "sparse-momentum", "static"])
def test_methods_move_its_weights_within_their_number(method):
    torch.manual_seed(0)
    model = nn.Sequential(SparseLinear(20, 30, density=0.2), nn.ReLU(), SparseLinear(30, 5, density=0.3))
    first = [layer.weight.detach() != 0 for layer in (model[0], model[2])]
    handle = train(model, method=method)
    assert handle.nonzeros == handle.budget == 120 + 45
    moved = any(not torch.equal(mask, old) for mask, old in zip(handle.masks.values(), first, strict=True))
    assert moved == (method != "static")
    handle.detach()
    model(torch.randn(2, 20)).sum().backward()
    assert all(p.grad.shape == p.shape for p in model.parameters())


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_connectivity_of_ones_own():
    import scipy.sparse

    wanted = torch.rand(12, 20) < 0.2
    given = {
        "scipy": scipy.sparse.csr_matrix(wanted.numpy().astype(np.float32)),
        "csr": wanted.float().to_sparse_csr(),
        "coo": wanted.float().to_sparse(),
    }
    for matrix in given.values():
        layer = SparseLinear(20, 12, connectivity=matrix)
        assert torch.equal(regrow.nn.marks_of(matrix, torch.Size([12, 20])).dense(), wanted)
        assert torch.equal(layer.weight != 0, wanted)
        handle = train(nn.Sequential(layer), method="static")
        assert torch.equal(handle.masks["0"], wanted)


def test_positions_beyond_64_thousand_32_and_33_bits():
    side = 100_000
    layer = SparseLinear(side, side, density=3e-8)
    assert layer._support.numel == 10**10 > 2**33
    positions = layer._support.positions
    assert int(positions[-1]) > 2**32
    x = torch.zeros(2, side)
    rows, columns = positions // side, positions % side
    x[:, columns] = torch.randn(2, len(columns))
    y = layer(x)
    expected = layer.bias.detach().repeat(2, 1)
    values = layer._parameters["weight"].detach()
    expected.index_add_(1, rows, x[:, columns] * values)
    torch.testing.assert_close(y, expected)
    y.sum().backward()
    torch.testing.assert_close(layer._parameters["weight"].grad, x[:, columns].sum(0))
    handle = train(nn.Sequential(layer), steps=4, features=side, method="set")
    assert handle.nonzeros == 300
    assert handle.updates == 1
    state = handle.model.state_dict()
    assert "0.weight.values" in state
    assert "0.weight" not in state
    handle.model.load_state_dict(state)
    copied = copy.deepcopy(handle.model)
    torch.testing.assert_close(copied(x), handle.model(x))


def test_models_from_the_meta_device():
    with torch.device("meta"):
        model = nn.Sequential(nn.Conv2d(2, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(32, 4))
    materialise(model, density=0.25)
    assert not any(tensor.is_meta for tensor in [*model.parameters(), *model.buffers()])
    assert model[0]._parameters["weight"].numel() == 36
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = regrow.sparsify(model, optimizer, "rigl", steps=6, update_every=2, **COMPACT)
    for _ in range(6):
        optimizer.zero_grad()
        model(torch.randn(3, 2, 4, 4)).square().mean().backward()
        optimizer.step()
    assert handle.nonzeros == round(0.25 * (144 + 128))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: SparseLinear(4, 4), "one of them"),
        (lambda: SparseLinear(4, 4, 0.0), r"\(0, 1\]"),
        (lambda: SparseLinear(4, 4, connectivity=torch.eye(3).to_sparse()), "shape"),
        (lambda: SparseLinear(4, 4, connectivity=[[1]]), "scipy.sparse"),
    ],
)
def test_bad_layers_are_refused(make, said):
    with pytest.raises(ConfigurationError, match=said):
        make()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"storage": "dense", "execution": "masked"}, "storage='compact'"),
        ({"density": 0.9}, "leave density out"),
        ({"method": "gradual-pruning", "steps": 40}, "chooses its first weights"),
    ],
    ids=str,
)
def test_runs_that_need_dense_layers_are_refused(arguments, said):
    model = nn.Sequential(SparseLinear(20, 12, density=0.3))
    with pytest.raises((ConfigurationError, UnsupportedError), match=said):
        train(model, **{"method": "set", **arguments})


def test_layers_of_both_kinds_are_refused_unless_the_scope_says_so():
    model = nn.Sequential(SparseLinear(20, 12, density=0.3), nn.ReLU(), nn.Linear(12, 4))
    with pytest.raises(ConfigurationError, match=r"scope=Scope\(dense=\('2',\)\)"):
        train(model, method="set")
    assert train(model, method="set", scope=regrow.Scope(dense=("2",))).nonzeros == 72


def test_what_exists_only_sparse_does_not_become_dense():
    model = nn.Sequential(SparseLinear(20, 12, density=0.3))
    handle = train(model, method="set")
    with pytest.raises(UnsupportedError, match="exists only sparse"):
        handle.densify()
