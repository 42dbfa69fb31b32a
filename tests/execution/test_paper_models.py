"""The paper's networks: activations stay in CHWN from the first sparse layer to the last, and the numbers are those of masked execution."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import regrow
from regrow import models, native
from regrow.execution import execution_of
from regrow.execution.kernels.layout import lies_chwn, to_chwn
from regrow.execution.modules.layers import Execution

pytestmark = pytest.mark.skipif(not native.available(), reason="native kernels not built")

SIZES = {"vgg16-d": 32, "wrn-22-2": 16, "resnet50": 32}
BATCH = 4


def sparse_model(name, execution, dtype=torch.float32, **options):
    """A small-input version of a network with a tenth of its weights, and its handle."""
    torch.manual_seed(0)
    model = models.create(name, input_shape=(3, SIZES[name], SIZES[name]), num_classes=10, **options).to(dtype)
    for module in model.modules():
        # A filter without weights gives a constant, batch norm its bias: if that is 0, rounding decides whether ReLU passes a gradient.
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.normal_(module.bias, std=0.3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = regrow.sparsify(model, optimizer, "static", density=0.1, steps=10, execution=execution)
    return model, handle


def batch(name, dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(BATCH, 3, SIZES[name], SIZES[name], generator=generator, dtype=dtype)
    return x, torch.randint(10, (BATCH,), generator=generator)


@pytest.fixture
def arrivals(monkeypatch):
    """By execution, in the order of their calls: whether a sparse layer's input was in CHWN when it came."""
    seen, compute = {}, Execution.compute

    def watched(self, x, *arguments):
        seen[self] = lies_chwn(x)
        return compute(self, x, *arguments)

    monkeypatch.setattr(Execution, "compute", watched)
    return seen


@pytest.fixture
def conversions(monkeypatch):
    """Shapes (samples, values of a sample) of the tensors that were brought into the layout."""
    seen, call = [], native.call

    def watched(name, dtype, *arguments):
        if name == "transpose":
            seen.append(arguments[1:3])
        call(name, dtype, *arguments)

    monkeypatch.setattr(native, "call", watched)
    return seen


@pytest.mark.parametrize("name", SIZES)
def test_inputs_arrive_travelling(name, arrivals, conversions):
    model, handle = sparse_model(name, "sparse")
    layers = [layer.module for layer in handle.network.layers]
    x, y = batch(name)
    out = model(x)
    assert set(arrivals) == {execution_of(layer) for layer in layers}
    assert list(arrivals.values()) == [False] + [True] * (len(layers) - 1)  # data come as they are
    assert conversions == [(BATCH, x[0].numel())]
    F.cross_entropy(out, y).backward()
    assert conversions[1:] == [(BATCH, 10)]  # the loss's gradient
    assert all(execution.left_layout is None for execution in arrivals)
    assert {(row.execution, row.reason) for row in handle.explain()} == {("sparse", "native kernels")}


def outcome(name, execution):
    """Log-probabilities and gradients at present weights, in double precision: differences are of meaning, not of rounding."""
    options = {"dropout": 0.0} if name.startswith("wrn") else {}  # dropout draws in memory's order
    model, handle = sparse_model(name, execution, torch.float64, **options)
    x, y = batch(name, torch.float64)
    out = F.log_softmax(model(x.requires_grad_()), dim=1)
    F.nll_loss(out, y).backward()
    gradients = {key: parameter.grad for key, parameter in model.named_parameters()}
    for layer in handle.network.layers:
        gradients[f"{layer.name}.weight"] = gradients[f"{layer.name}.weight"] * handle.masks[layer.name]
    buffers = {key: buffer for key, buffer in model.named_buffers() if "running" in key}
    return {"out": out.detach(), "x": x.grad, **gradients, **buffers}


@pytest.mark.parametrize("name", SIZES)
def test_same_numbers_as_masked_execution(name):
    expected, found = outcome(name, "masked"), outcome(name, "sparse")
    assert expected.keys() == found.keys()
    for key, value in expected.items():
        # Batch norm follows VGG's convolutions: the gradient of their bias is zero but for rounding, so it is measured by the weight's.
        zero = name == "vgg16-d" and key.startswith("conv") and key.endswith("bias")
        scale = expected[key.replace("bias", "weight")] if zero else value
        error = (found[key] - value).norm() / scale.norm()
        assert error < 1e-9, (key, float(error))


def test_flatten_of_a_travelling_tensor_is_a_view():
    x = to_chwn(torch.randn(5, 6, 3, 2))
    for flat in (x.flatten(1), nn.Flatten()(x)):
        assert flat.data_ptr() == x.data_ptr()
        assert lies_chwn(flat)


@pytest.mark.parametrize("function", [lambda x: F.log_softmax(x, dim=1), nn.LogSoftmax(dim=1), nn.Flatten()])
def test_head_on_travelling_tensors(function):
    values, grad = torch.randn(5, 7), torch.randn(5, 7)
    results = []
    for layout in (torch.clone, to_chwn):
        x = layout(values).requires_grad_()
        y = function(x)
        y.backward(grad)
        results.append((y.detach(), x.grad))
    torch.testing.assert_close(*results)
