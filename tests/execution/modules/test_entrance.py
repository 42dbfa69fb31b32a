"""Dense convolutions whose outputs are in CHWN."""

import copy

import pytest
import torch
from torch import nn

import regrow
from regrow import native
from regrow.execution.kernels.layout import is_chwn, to_chwn, to_ordinary
from regrow.execution.modules.entrance import ChwnConv2d

pytestmark = pytest.mark.skipif(not native.available(), reason="native kernels not built")


def network():
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU())
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(8 * 16, 5))


def sparse(model, execution):
    """The optimizer, which must stay alive, and the handle."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return optimizer, regrow.sparsify(model, optimizer, "static", density=0.3, scope="dense:0", execution=execution)


def test_outputs_travel_from_the_dense_convolution_on():
    model = network()
    expected = copy.deepcopy(model)
    (_kept, masked), (_kept_too, handle) = sparse(expected, "masked"), sparse(model, "sparse")
    assert type(model[0]) is ChwnConv2d
    x = torch.randn(9, 3, 6, 6)
    assert is_chwn(model[0](x))
    for m in (model, expected):
        m(x).square().sum().backward()
    for mine, theirs in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-4)
    assert torch.equal(masked.masks["3"], handle.masks["3"])
    assert not any("left the layout" in row.reason for row in handle.explain())
    handle.densify()
    assert type(model[0]) is nn.Conv2d


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
def test_gradients_arrive_in_the_order_of_the_convolution(order):
    layer = nn.Conv2d(6, 4, 3)
    layer.__class__ = ChwnConv2d
    seen = []
    x = torch.randn(5, 6, 6, 6).contiguous(memory_format=order)
    y = layer(x)
    y.grad_fn.register_hook(lambda inputs, _: seen.append(inputs[0]))
    (y * torch.randn_like(y)).sum().backward()
    assert is_chwn(y)
    assert seen[0].is_contiguous(memory_format=order)
    assert not is_chwn(seen[0])


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("options", [{}, {"stride": 2, "padding": "valid"}, {"padding": "same", "bias": False}])
def test_images_are_computed_on_our_kernels(order, options, monkeypatch):
    torch.manual_seed(0)
    layer = nn.Conv2d(3, 6, 3, **options).to(memory_format=order)
    twin, x = copy.deepcopy(layer), torch.randn(5, 3, 8, 9).contiguous(memory_format=order)
    expected = twin(x)
    expected.square().sum().backward()
    layer.__class__ = ChwnConv2d
    monkeypatch.setattr(nn.Conv2d, "forward", lambda *_: pytest.fail("torch's convolution"))
    y = layer(x)
    y.square().sum().backward()
    assert is_chwn(y)
    torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5)
    for mine, theirs in zip(layer.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("change", ["autocast", "single", "circular", "compiled"])
def test_images_that_our_kernels_do_not_compute(change):
    torch.manual_seed(0)
    layer, x = (
        nn.Conv2d(3, 6, 3, padding_mode="circular" if change == "circular" else "zeros", padding=1),
        torch.randn(2, 3, 8, 8),
    )
    twin = copy.deepcopy(layer)
    layer.__class__ = ChwnConv2d
    x = x[0] if change == "single" else x
    with torch.autocast("cpu", enabled=change == "autocast"):
        call = torch.compile(layer, backend="eager") if change == "compiled" else layer
        assert torch.equal(call(x), twin(x))


@pytest.mark.parametrize(("computed", "kind"), [({"6"}, nn.Conv2d), ({"3"}, ChwnConv2d), ({"3", "6"}, ChwnConv2d)])
def test_maps_enter_where_no_dense_convolution_may_be_next(computed, kind):
    model = network()
    _optimizer, handle = sparse(model, "sparse")
    handle.switch._compute_sparse(computed)
    assert type(model[0]) is kind


@pytest.mark.parametrize("shape", [(9, 3, 4, 5), (1, 3, 2, 2), (7, 11)])
def test_there_and_back(shape):
    x = torch.randn(shape)
    assert torch.equal(to_ordinary(to_chwn(x)), x)
    assert to_ordinary(to_chwn(x)).is_contiguous()
