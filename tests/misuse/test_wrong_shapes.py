"""Shapes, types and strides that kernels assume: right, or refused as torch refuses them."""

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

import regrow
from regrow import native
from regrow.errors import UnsupportedError
from regrow.execution import Geometry, SparsePattern
from regrow.execution.kernels import passes
from regrow.execution.kernels.gradient import GradientBuffer
from regrow.support import Support

pytestmark = pytest.mark.skipif(not native.available(), reason="native kernels not built")


def sparse(net, method="static", density=0.5, **options):
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    return regrow.sparsify(net, optimizer, method, density=density, **options), optimizer


class Down(nn.Module):
    def __init__(self, inplace):
        super().__init__()
        self.conv, self.skip = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, stride=2, padding=1)
        self.down = nn.Sequential(nn.ReLU(inplace=inplace), nn.MaxPool2d(2))

    def forward(self, x):
        y = self.conv(x)
        return self.down(y) + self.skip(y)  # where the ReLU writes to y, the other branch sees it


@pytest.mark.parametrize("inplace", [True, False])
def test_a_relu_in_place_is_seen_by_other_branches(inplace):
    torch.manual_seed(0)
    net = Down(inplace).double()
    handle, _ = sparse(net)
    x = torch.randn(16, 3, 8, 8, dtype=torch.float64)
    expected = net(x).detach()
    handle.execute("sparse")
    torch.testing.assert_close(net(x).detach(), expected)


def test_a_hook_sees_what_a_relu_in_place_wrote():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.MaxPool2d(2))
    held = []
    net[0].register_forward_hook(lambda module, inputs, output: held.append(output))
    sparse(net, execution="sparse")
    net(torch.randn(2, 3, 8, 8))
    assert float(held[0].detach().min()) >= 0


def test_a_strided_bias_in_a_stack():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4)).double()
    net[0].bias = nn.Parameter(torch.randn(10, dtype=torch.float64)[::2])
    handle, _ = sparse(net)
    x = torch.randn(7, 6, dtype=torch.float64)
    expected = net(x).detach()
    handle.execute("sparse")
    torch.testing.assert_close(net(x).detach(), expected)


@pytest.mark.parametrize("channels", [2, 128])
def test_batch_norm_of_the_wrong_size_is_torchs_error(channels):
    net = nn.Sequential(nn.Conv2d(8, 64, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(64, 8, 3))
    sparse(net, execution="sparse")
    net.eval()
    with pytest.raises(RuntimeError, match="running_mean should contain 64 elements"):
        net(torch.randn(4, 8, 8, 8))


def test_strided_vectors_of_batch_norm():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 4, 3)).double()
    net[1].weight = nn.Parameter(torch.randn(16, dtype=torch.float64)[::2])
    handle, _ = sparse(net)
    x = torch.randn(5, 3, 8, 8, dtype=torch.float64)

    def gradients():
        return torch.autograd.grad(net(x).square().sum(), [net[0].weight, net[1].weight])

    expected = gradients()
    handle.execute("sparse")
    for found, right in zip(gradients(), expected, strict=True):
        torch.testing.assert_close(found * (found != 0), right * (found != 0))


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64])
def test_types_that_torch_refuses(dtype):
    net = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))
    sparse(net, execution="sparse")
    with pytest.raises(TypeError, match=f"layer 0: input is {dtype}, its weight torch.float32"):
        net(torch.ones(2, 6, dtype=dtype))


def test_autocast_converts():
    net = nn.Linear(6, 4)
    sparse(net, execution="sparse")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert net(torch.ones(2, 6, dtype=torch.bfloat16)).dtype == torch.float32


def test_wrong_channels_name_the_layer():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3))
    sparse(net, execution="sparse")
    with pytest.raises(ValueError, match=r"layer 0: input has shape \(2, 5, 8, 8\), expected 3 channels"):
        net(torch.ones(2, 5, 8, 8))


@pytest.mark.parametrize("chwn", [False, True])
def test_negated_views(chwn):
    torch.manual_seed(0)
    net = nn.Linear(6, 4)
    handle, _ = sparse(net)
    memory = torch.randn(6, 9).t() if chwn else torch.randn(9, 6)
    x = torch._neg_view(memory)
    grad = torch._neg_view(torch.randn(4, 9).t() if chwn else torch.randn(9, 4))

    def passes():
        net.zero_grad()
        (y := net(x)).backward(grad)
        return y.detach(), net.weight.grad * (net.weight != 0), net.bias.grad.clone()

    expected = passes()
    handle.execute("sparse")
    torch.testing.assert_close(passes(), expected)


@pytest.mark.parametrize("state", [torch.zeros(4), torch.zeros(4, 6, 1)])
def test_optimizer_state_of_another_shape_is_torchs_error(state):
    net = nn.Linear(6, 4)
    _, optimizer = sparse(net, density=0.2, execution="sparse")
    for _ in range(2):
        optimizer.zero_grad()
        net(torch.randn(5, 6)).square().sum().backward()
        optimizer.step()
    optimizer.state[net.weight]["momentum_buffer"] = state
    net(torch.randn(5, 6)).square().sum().backward()
    with pytest.raises(RuntimeError, match=r"size|shape"):
        optimizer.step()


def test_memory_that_was_given_back_is_refused():
    net = nn.Linear(6, 4)
    sparse(net, execution="sparse")
    net.weight.untyped_storage().resize_(0)
    with pytest.raises(ValueError, match="was given back"):
        net(torch.ones(2, 6))


@pytest.mark.parametrize("storage", ["dense", "compact"])
@pytest.mark.parametrize("trained", [False, True])
def test_fake_tensors_pass_through(trained, storage):
    net = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3))
    _, optimizer = sparse(net, execution="sparse", storage=storage)
    x = torch.randn(2, 6)

    def gradients():
        optimizer.zero_grad()
        net(x).square().sum().backward()
        return [parameter.grad.clone() for parameter in net.parameters()]

    expected = gradients() if trained else None
    optimizer.zero_grad()
    with FakeTensorMode(allow_non_fake_inputs=True):
        y = net(torch.ones(2, 6))
        y.sum().backward()
    assert isinstance(y, FakeTensor)
    assert y.shape == (2, 3)
    for parameter in net.parameters():
        assert isinstance(parameter.grad, FakeTensor)
        assert parameter.grad.shape == parameter.shape
    after = gradients()  # nothing fake is left behind
    assert all(type(gradient) is torch.Tensor for gradient in after)
    torch.testing.assert_close(after, expected or gradients(), rtol=0, atol=0)


def test_fake_gradients_are_not_lent_again():
    buffer, weight = GradientBuffer(), torch.ones(3, 4)
    support = Support(torch.ones(3, 4, dtype=torch.bool))
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert isinstance(buffer.lend(weight, support), FakeTensor)
    assert type(buffer.lend(weight, support)) is torch.Tensor


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
def test_script_names_the_remedy():
    net = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3))
    handle, _ = sparse(net, execution="sparse")
    with pytest.raises(UnsupportedError, match=r"call handle\.densify\(\) first"):
        torch.jit.script(net)
    handle.densify()
    torch.jit.script(net)


def test_transforms_compute_dense():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)).double()
    handle, _ = sparse(net)
    x = torch.randn(7, 6, dtype=torch.float64)
    expected = torch.func.vmap(net)(x), torch.func.jacrev(net)(x[0])
    handle.execute("sparse")
    torch.testing.assert_close((torch.func.vmap(net)(x), torch.func.jacrev(net)(x[0])), expected)


@pytest.mark.parametrize(
    "options",
    [{"groups": 0}, {"stride": (0, 1)}, {"dilation": (1, -1)}, {"padding": (0, 0, -1, 0)}, {"kernel": (0, 1)}],
)
def test_windows_that_make_no_sense(options):
    with pytest.raises(ValueError, match="positive"):
        Geometry(**options)


@pytest.mark.parametrize(
    ("shape", "geometry", "message"),
    [
        ((5, 3, 1, 1), Geometry(groups=2), "cannot be split into 2 groups"),
        ((4, 3, 1, 1), Geometry((31, 31)), "does not fit weights"),
        ((4, 3, 2), Geometry((2, 1)), "does not fit weights"),
        ((4,), Geometry(), "2 to 4 dimensions"),
        ((0, 3), Geometry(), "between 1 and"),
        ((4, 1), Geometry(padding=(0, 1, 0, 0)), "neither stride nor padding"),
    ],
)
def test_patterns_that_would_read_outside(shape, geometry, message):
    with pytest.raises(ValueError, match=message):
        SparsePattern(torch.ones(shape, dtype=torch.bool), geometry)


def test_maps_without_pixels_and_maps_too_large():
    pattern = SparsePattern(torch.ones(4, 3, 2, 2, dtype=torch.bool), Geometry((2, 2), (2, 2), (1, 1, 1, 1)))
    with pytest.raises(ValueError, match="no pixels"):
        passes.forward(torch.zeros(2, 3, 0, 4), torch.zeros(4, 3, 2, 2), None, pattern)
    with pytest.raises(ValueError, match="too large"):
        pattern.plan("forward", 2**16, 2**16, torch.float32, samples=1)


@pytest.mark.parametrize("storage", ["dense", "compact"])
def test_maps_that_are_too_large_are_refused_before_they_are_copied(storage, monkeypatch):
    net = nn.Conv2d(1, 1, 1)
    sparse(net, density=1.0, execution="sparse", storage=storage)
    x = torch.zeros(1).expand(1, 1, 2**16, 2**15)
    for name in ("new_empty_strided", "contiguous", "clone"):
        monkeypatch.setattr(torch.Tensor, name, lambda *given, **more: pytest.fail("a copy of 8 GB"))
    with pytest.raises(ValueError, match="65536 x 32768 pixels are too large for sparse kernels"):
        net(x)


def test_kernels_that_reach_too_far_are_refused():
    pattern = SparsePattern(torch.ones(1, 1, 2, 2, dtype=torch.bool), Geometry((2, 2), dilation=(300, 300)))
    with pytest.raises(ValueError, match=r"dilation \(300, 300\) reaches too far for sparse kernels"):
        passes.forward(torch.zeros(1, 1, 304, 304), torch.zeros(1, 1, 2, 2), None, pattern)


def test_kernels_that_reach_far_compute():
    """Larger tiles would pack more pixels than 16 bits count."""
    torch.manual_seed(0)
    weight, x = torch.randn(2, 1, 128, 128), torch.randn(3, 1, 256, 384)
    pattern = SparsePattern(torch.ones(weight.shape, dtype=torch.bool), Geometry((128, 128), (128, 128)))
    y, _ = passes.forward(x, weight, None, pattern)
    assert torch.allclose(y, nn.functional.conv2d(x, weight, stride=128), atol=1e-2)
