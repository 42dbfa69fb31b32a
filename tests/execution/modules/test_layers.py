"""Layers that switch how they compute: same numbers, same place in the model."""

import copy
import pickle

import pytest
import torch
from torch import nn

import regrow
from regrow import native
from regrow.execution import attach, execution_of, restore, unsupported
from regrow.execution.modules import layers
from regrow.execution.modules.chwn import use_chwn

pytestmark = pytest.mark.skipif(not native.available(), reason="native kernels not built")

LAYERS = [
    (lambda: nn.Linear(20, 13), (5, 20)),
    (lambda: nn.Linear(20, 13, bias=False), (2, 3, 20)),
    (lambda: nn.Linear(20, 13), (20,)),
    (lambda: nn.Conv1d(4, 6, 5, padding=2, stride=2), (9, 4, 11)),
    (lambda: nn.Conv1d(4, 6, 3, padding="same", dilation=2), (4, 11)),
    (lambda: nn.Conv2d(6, 8, 3, stride=2, padding=1, groups=2), (3, 6, 9, 7)),
    (lambda: nn.Conv2d(6, 8, 3, padding="same"), (3, 6, 9, 7)),
    (lambda: nn.Conv2d(6, 8, 1, bias=False), (6, 9, 7)),
    (lambda: nn.Conv2d(6, 8, 3, padding="valid"), (3, 6, 4, 4)),
]


def random_mask(weight, density=0.3, seed=0):
    return torch.rand(weight.shape, generator=torch.Generator().manual_seed(seed)) < density


def masked_pair(make):
    torch.manual_seed(0)
    dense = make()
    mask = random_mask(dense.weight)
    with torch.no_grad():
        dense.weight.mul_(mask)
    sparse = copy.deepcopy(dense)
    return dense, sparse, attach(sparse, mask), mask


def gradients(module, x, grad):
    x = x.clone().requires_grad_()
    module.zero_grad()
    y = module(x)
    y.backward(grad)
    return [y.detach(), x.grad, module.weight.grad] + ([module.bias.grad] if module.bias is not None else [])


@pytest.mark.parametrize(("make", "shape"), LAYERS)
def test_same_numbers_as_dense(make, shape):
    dense, sparse, execution, mask = masked_pair(make)
    x = torch.randn(shape)
    grad = torch.randn_like(dense(x))
    expected = gradients(dense, x, grad)
    execution.dense_gradient(True)
    torch.testing.assert_close(gradients(sparse, x, grad), expected, rtol=1e-4, atol=1e-5)
    execution.dense_gradient(False)
    expected[2] = expected[2] * mask
    torch.testing.assert_close(gradients(sparse, x, grad), expected, rtol=1e-4, atol=1e-5)
    assert (sparse.weight.grad[~mask] == 0).all()


@pytest.mark.parametrize(("make", "shape"), LAYERS[:1] + LAYERS[5:6])
def test_place_in_the_model_is_kept(make, shape):
    dense, sparse, execution, _ = masked_pair(make)
    assert isinstance(sparse, type(dense))
    assert list(sparse.state_dict()) == list(dense.state_dict())
    assert execution_of(sparse) is execution
    x = torch.randn(shape)
    restored, twin = pickle.loads(pickle.dumps(sparse)), copy.deepcopy(sparse)
    assert torch.equal(restored(x), sparse(x))
    # Nobody tells a lone copy of topology updates, so it computes dense until it is given masks.
    torch.testing.assert_close(twin(x), sparse(x), rtol=1e-4, atol=1e-5)
    assert not execution_of(twin).live
    execution_of(twin).update(execution.pattern.mask)
    assert torch.equal(twin(x), sparse(x))
    for other in (restored, twin):
        assert execution_of(other).pattern is not execution.pattern
    execution.detach()
    assert type(sparse) is type(dense)
    assert execution_of(sparse) is None


def test_update_takes_the_new_mask():
    dense, sparse, execution, _mask = masked_pair(LAYERS[5][0])
    x = torch.randn(LAYERS[5][1])
    sparse(x).sum().backward()
    other = random_mask(dense.weight, seed=1)
    with torch.no_grad():
        for module in (dense, sparse):
            module.weight.copy_(torch.randn(dense.weight.shape, generator=torch.Generator().manual_seed(2)) * other)
    execution.update(other)
    expected = gradients(dense, x, torch.ones_like(dense(x)))
    expected[2] = expected[2] * other
    torch.testing.assert_close(gradients(sparse, x, torch.ones_like(dense(x))), expected, rtol=1e-4, atol=1e-5)


def test_gradient_mask_may_be_a_superset():
    torch.manual_seed(0)
    layer = nn.Conv2d(6, 8, 3, padding=1)
    forward, backward = (
        random_mask(layer.weight, 0.1),
        random_mask(layer.weight, 0.1) | random_mask(layer.weight, 0.2, 1),
    )
    dense = copy.deepcopy(layer)
    with torch.no_grad():
        dense.weight.mul_(forward)
    attach(layer, forward, backward)
    x = torch.randn(4, 6, 8, 8)
    grad = torch.randn(4, 8, 8, 8)
    expected = gradients(dense, x, grad)
    expected[2] = expected[2] * backward
    torch.testing.assert_close(gradients(layer, x, grad), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("set_to_none", [True, False])
def test_gradient_memory_is_never_shared_wrongly(set_to_none):
    dense, sparse, _, mask = masked_pair(LAYERS[0][0])
    kept = []
    for step in range(4):
        x = torch.randn(5, 20, generator=torch.Generator().manual_seed(step))
        for module in (dense, sparse):
            module.zero_grad(set_to_none=set_to_none)
            module(x).square().sum().backward()
            module(2 * x).square().sum().backward()  # accumulates
        torch.testing.assert_close(sparse.weight.grad, dense.weight.grad * mask, rtol=1e-4, atol=1e-4)
        kept.append((sparse.weight.grad, sparse.weight.grad.clone()))
        if set_to_none:
            assert all(torch.equal(held, copied) for held, copied in kept)


def test_gradient_memory_is_reused_and_cleaned():
    _, sparse, _, mask = masked_pair(LAYERS[0][0])
    addresses = set()
    for _ in range(3):
        sparse.zero_grad()
        sparse(torch.randn(5, 20)).sum().backward()
        addresses.add(sparse.weight.grad.data_ptr())
        assert (sparse.weight.grad[~mask] == 0).all()
        sparse.weight.grad.add_(1.0)  # somebody writes outside the mask
    assert len(addresses) == 1


def test_weight_shared_by_two_calls():
    dense, sparse, _, mask = masked_pair(lambda: nn.Linear(8, 8))
    x = torch.randn(3, 8)
    for module in (dense, sparse):
        module(module(x)).sum().backward()
    torch.testing.assert_close(sparse.weight.grad, dense.weight.grad * mask, rtol=1e-4, atol=1e-5)


def test_unsupported_layers_say_why():
    assert "does not compute as" in unsupported(nn.ConvTranspose2d(2, 2, 3))
    assert "never calls it" in unsupported(nn.MultiheadAttention(4, 2).out_proj)
    assert "padding_mode" in unsupported(nn.Conv2d(2, 2, 3, padding=1, padding_mode="reflect"))
    assert "bfloat16" in unsupported(nn.Linear(2, 2, dtype=torch.bfloat16))
    assert "its weight is computed" in unsupported(nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)))
    with pytest.raises(ValueError, match="mask has shape"):
        attach(nn.Linear(3, 2), torch.ones(3, 2, dtype=torch.bool))
    with pytest.raises(TypeError, match="bool"):
        attach(nn.Linear(3, 2), torch.ones(2, 3))
    layer = nn.Linear(3, 2)
    attach(layer, torch.ones(2, 3, dtype=torch.bool))
    with pytest.raises(ValueError, match="already"):
        attach(layer, torch.ones(2, 3, dtype=torch.bool))


class SmallNet(nn.Module):
    """Convolutions, batch norm, functional ReLU, a residual addition, pooling, dropout-free head."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.a, self.b = nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.Conv2d(16, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.down = nn.Conv2d(16, 24, 3, stride=2, padding=1)
        self.tail = nn.Sequential(
            nn.BatchNorm2d(24),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(24 * 4, 32),
            nn.BatchNorm1d(32),
            nn.ReLU(),
        )
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        x = self.stem(x)
        x = x + self.b(nn.functional.relu(self.norm(self.a(x))))
        return self.head(self.tail(self.down(x)))


def trained_losses(sparse, steps=20):
    torch.manual_seed(3)
    model = SmallNet()
    layers = [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)][1:]
    masks = [random_mask(layer.weight, 0.2, seed) for seed, layer in enumerate(layers)]
    with torch.no_grad():
        for layer, mask in zip(layers, masks, strict=True):
            layer.weight.mul_(mask)
    if sparse:
        use_chwn(model)
        for layer, mask in zip(layers, masks, strict=True):
            attach(layer, mask)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    x, y = torch.randn(4, 32, 3, 8, 8), torch.randint(10, (4, 32))
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x[step % 4]), y[step % 4])
        loss.backward()
        for layer, mask in zip(layers, masks, strict=True):
            layer.weight.grad.mul_(mask)
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    return torch.tensor(losses), model(x[0]).detach(), model


def test_training_matches_masked_dense():
    dense_losses, dense_output, _ = trained_losses(sparse=False)
    losses, output, model = trained_losses(sparse=True)
    assert ((losses - dense_losses).abs() / dense_losses).max() < 1e-4
    torch.testing.assert_close(output, dense_output, rtol=1e-2, atol=1e-3)
    restore(model)
    for module in model.modules():
        if execution := execution_of(module):
            execution.detach()
    torch.testing.assert_close(model(torch.zeros(2, 3, 8, 8)).shape, torch.Size([2, 10]))
    assert not any("regrow" in type(module).__module__ for module in model.modules())


def test_compile_does_not_break():
    _, sparse, _, _mask = masked_pair(LAYERS[5][0])
    x = torch.randn(LAYERS[5][1])
    expected = gradients(sparse, x, torch.ones(3, 8, 5, 4))
    compiled = torch.compile(sparse, backend="aot_eager", fullgraph=True)
    x = x.clone().requires_grad_()
    sparse.zero_grad()
    y = compiled(x)
    y.backward(torch.ones_like(y))
    torch.testing.assert_close([y, x.grad, sparse.weight.grad, sparse.bias.grad], expected)


def test_a_plan_outlives_its_place_among_the_kept_ones():
    """More map sizes than are kept, all in one graph: every backward meets a plan that was dropped."""
    layer = nn.Conv1d(3, 4, 3)
    twin = copy.deepcopy(layer)
    mask = torch.rand(layer.weight.shape) < 0.5
    with torch.no_grad():
        twin.weight.mul_(mask)
        layer.weight.mul_(mask)
    attach(layer, mask)
    inputs = [torch.randn(2, 3, length, requires_grad=True) for length in range(3, 33)]
    gradients = [torch.autograd.grad(sum(m(x).square().sum() for x in inputs), inputs) for m in (layer, twin)]
    for mine, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layers", [1, 2])
def test_input_on_another_device_is_an_error(layers):
    model = nn.Sequential(*(module for _ in range(layers) for module in (nn.Linear(4, 4), nn.ReLU())))
    for layer in model[::2]:
        attach(layer, torch.ones(4, 4, dtype=torch.bool))
    use_chwn(model)
    with pytest.raises(TypeError, match=r"x must be float32 or float64 on the CPU, got torch.float32 on meta"):
        model(torch.zeros(2, 4, device="meta"))


@pytest.mark.parametrize("storage", ["dense", "compact"])
@pytest.mark.parametrize(
    ("make", "shape", "said"),
    [
        (
            lambda: nn.Conv2d(3, 4, 5, padding=1),
            (2, 3, 2, 9),
            r"\(2, 3, 2, 9\), expected maps of at least 3 x 3 pixels",
        ),
        (lambda: nn.Conv2d(3, 4, (1, 5)), (3, 9, 4), r"\(1, 3, 9, 4\), expected maps of at least 1 x 5 pixels"),
        (lambda: nn.Conv1d(3, 4, 3, dilation=3), (2, 3, 6), r"\(2, 3, 1, 6\), expected maps of at least 1 x 7 pixels"),
        (
            lambda: nn.Conv2d(3, 4, 3, padding=2),
            (2, 3, 0, 4),
            r"\(2, 3, 0, 4\), expected maps of at least 1 x 1 pixels",
        ),
    ],
)
def test_maps_on_which_the_kernel_does_not_fit_are_refused_by_the_layers_name(make, shape, said, storage):
    model = nn.Sequential(nn.Identity(), make())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    regrow.sparsify(model, optimizer, "static", density=0.5, execution="sparse", storage=storage)
    with pytest.raises(ValueError, match=f"layer 1: input has shape {said}"):
        model(torch.randn(shape))


@pytest.mark.filterwarnings("ignore:`torch.jit")
@pytest.mark.parametrize("grad", [True, False])
def test_a_traced_model_is_an_ordinary_program(grad):
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.2), nn.Flatten(), nn.Linear(72, 16),
        nn.ReLU(), nn.Linear(16, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    regrow.sparsify(model, optimizer, density=0.2, steps=10, update_every=5, execution="sparse")
    x = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    model.eval()
    with torch.set_grad_enabled(grad):
        traced = torch.jit.trace(model, x)
        torch.testing.assert_close(traced(x), model(x))


def test_a_model_converted_to_a_type_without_kernels_computes_dense():
    model = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    handle = regrow.sparsify(model, optimizer, density=0.2, steps=10, update_every=2, execution="sparse")
    model.bfloat16()
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(8, 12).bfloat16()).float().square().mean().backward()
        optimizer.step()
    assert handle.updates == 2
    assert all(row.execution == "masked" and "torch.bfloat16" in row.reason for row in handle.explain())
    assert all(not (layer.weight * ~handle.masks[name]).any() for name, layer in (("0", model[0]), ("2", model[2])))


class Named(nn.Linear):
    """Computes as its base class does."""


class Doubling(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def test_a_subclass_that_computes_alike_runs_on_kernels_and_is_copied_pickled_and_detached():
    torch.manual_seed(0)
    model = nn.Sequential(Named(6, 5), nn.ReLU(), nn.Linear(5, 4)).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = regrow.sparsify(model, optimizer, "static", density=0.5)
    x = torch.randn(7, 6, dtype=torch.float64)
    expected, shown = model(x), str(model)
    handle.execute("sparse")
    assert isinstance(model[0], layers.SparseLinear)
    assert isinstance(model[0], Named)
    assert str(model) == shown, "print(model) shows what the user built"
    torch.testing.assert_close(model(x), expected)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        torch.testing.assert_close(twin(x), expected)
        assert isinstance(twin[0], Named)
    handle.detach()
    assert type(model[0]) is Named
    assert "Doubling does not compute as nn.Linear" in layers.unsupported(Doubling(2, 2))


def test_printed_names_of_all_that_travels():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(72, 4),
    )
    shown = str(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    regrow.sparsify(model, optimizer, "static", density=0.2, execution="sparse")
    assert str(model) == shown
