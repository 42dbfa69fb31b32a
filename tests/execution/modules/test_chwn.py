"""The CHWN layout: torch's semantics for batch norm and pooling, forward and backward, train and eval."""

import copy

import pytest
import torch
from torch import nn

from regrow import native
from regrow.execution import restore
from regrow.execution.kernels.layout import is_chwn, lies_chwn, to_chwn
from regrow.execution.modules.chwn import use_chwn

pytestmark = pytest.mark.skipif(not native.available(), reason="native kernels not built")


def untracked(norm):
    """Running statistics taken away from outside, to normalise by the batch's own."""
    norm.running_mean = norm.running_var = None
    return norm


MODULES = [
    (lambda: nn.BatchNorm2d(6), (9, 6, 5, 7)),
    (lambda: nn.BatchNorm2d(6, momentum=None), (9, 6, 5, 7)),
    (lambda: nn.BatchNorm2d(6, affine=False, track_running_stats=False), (9, 6, 5, 7)),
    (lambda: untracked(nn.BatchNorm2d(6)), (9, 6, 5, 7)),
    (lambda: nn.BatchNorm1d(33), (50, 33)),
    (lambda: nn.BatchNorm1d(6), (9, 6, 11)),
    (lambda: nn.Sequential(nn.BatchNorm2d(6), nn.ReLU()), (9, 6, 5, 7)),
    (lambda: nn.Sequential(nn.BatchNorm2d(6), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(210, 3)), (9, 6, 5, 7)),
    (lambda: nn.MaxPool2d(2), (9, 6, 8, 7)),
    (lambda: nn.MaxPool2d(3, stride=2, padding=1), (9, 6, 8, 7)),
    (lambda: nn.MaxPool2d(3, stride=2, ceil_mode=True), (9, 6, 8, 7)),
    (lambda: nn.MaxPool2d((2, 3), stride=1, dilation=2), (9, 6, 8, 7)),
    (lambda: nn.MaxPool2d(2, stride=1, padding=1, dilation=3), (9, 6, 8, 7)),
    (lambda: nn.AvgPool2d(2), (9, 6, 8, 6)),
    (lambda: nn.AvgPool2d(3, stride=2, padding=1), (9, 6, 8, 7)),
    (lambda: nn.AdaptiveAvgPool2d(1), (9, 6, 8, 7)),
    (lambda: nn.AdaptiveAvgPool2d((3, None)), (9, 6, 8, 7)),
]


def outcome(module, x, seed=5):
    """Output, input gradient, parameter gradients and buffers after one pass."""
    x = x.clone(memory_format=torch.preserve_format).requires_grad_()
    module.zero_grad()
    y = module(x)
    y.backward(torch.randn(y.shape, generator=torch.Generator().manual_seed(seed)))
    buffers = [b for b in module.buffers() if b is not None]
    return y.detach(), x.grad, *[p.grad for p in module.parameters()], *buffers


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("make", "shape"), MODULES)
def test_same_semantics(make, shape, training):
    torch.manual_seed(0)
    ordinary = make().train(training)
    changed = copy.deepcopy(ordinary)
    use_chwn(changed)
    for step in range(2):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(step)) * 2 + 1
        torch.testing.assert_close(outcome(changed, to_chwn(x)), outcome(ordinary, x), rtol=2e-5, atol=2e-5)
    restore(changed)
    assert type(changed) is type(ordinary)


def test_layout_is_kept():
    model = nn.Sequential(nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(), nn.AvgPool2d(2), nn.Flatten())
    assert use_chwn(model) == ["", "0", "2", "3", "4"]
    x = to_chwn(torch.randn(10, 6, 8, 8))
    for module in model:
        x = module(x)
        assert is_chwn(x)
        assert lies_chwn(x)
    assert x.stride() == (1, 10)


def test_max_pool_prefers_the_first_of_equals_and_nan():
    x = torch.zeros(2, 1, 2, 2)
    x[1, 0, 1, 0] = float("nan")
    pool = nn.MaxPool2d(2)
    expected = outcome(pool, x)
    use_chwn(pool)
    torch.testing.assert_close(outcome(pool, to_chwn(x)), expected, equal_nan=True)


def test_relu_before_max_pooling_is_computed_behind_it():
    """Exactly, also where all of a window is negative, zero or NaN."""
    ordinary = nn.Sequential(nn.ReLU(), nn.MaxPool2d(2, padding=1))
    x = torch.randint(-2, 3, (9, 3, 8, 8), generator=torch.Generator().manual_seed(0)).float() / 2
    x[1, 0, :2, :2], x[2, 1, 4, 4] = -1.0, float("nan")
    expected = outcome(ordinary, x)
    use_chwn(ordinary)
    found = outcome(ordinary, to_chwn(x))
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    assert type(ordinary(to_chwn(x).requires_grad_()).grad_fn).__name__ == "_MaxPoolFunctionBackward"


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("place", ["input", "infinite input", "bias"])
def test_relu_behind_batch_norm_passes_gradients_where_its_output_is_nan(place, dtype, training):
    """As torch's does; channels are 9 * 5 * 7 = 315 values long, so that whole vectors and the rest both meet a NaN."""
    ordinary = nn.Sequential(nn.BatchNorm2d(6), nn.ReLU()).to(dtype).train(training)
    x = torch.randn(9, 6, 5, 7, dtype=dtype)
    if place == "bias":  # outputs of these channels are NaN, their input's gradient need not be
        ordinary[0].bias.data[1::2] = float("nan")
    else:
        bad = float("nan") if place == "input" else float("inf")
        x[0, 0, 0, 0] = x[8, 2, 4, 6] = x[3, 4, 4, 5] = bad  # the first value of a channel, the last, one between
    expected = outcome(ordinary, x)
    use_chwn(ordinary)
    torch.testing.assert_close(outcome(ordinary, to_chwn(x)), expected, rtol=2e-5, atol=2e-5, equal_nan=True)
    finite = expected[1].isfinite().flatten(2).all(2).all(0)
    assert finite.all() if place == "bias" or not training else finite.tolist() == [False, True] * 3


def test_hooks_prevent_fusion():
    model = nn.Sequential(nn.BatchNorm2d(6), nn.ReLU())
    use_chwn(model)
    seen = []
    model[0].register_forward_hook(lambda module, inputs, output: seen.append(float(output.detach().min())))
    model(to_chwn(torch.randn(10, 6, 8, 8)))
    assert seen[0] < 0


def test_one_value_per_channel_is_an_error_in_training():
    norm = nn.BatchNorm1d(3)
    use_chwn(norm)
    with pytest.raises(ValueError, match="more than 1 value"):
        norm(torch.randn(1, 3))


def test_to_chwn_copies_only_if_needed():
    x = torch.randn(4, 3, 5, 6)
    moved = to_chwn(x)
    assert moved.stride() == (1, 120, 24, 4)
    assert torch.equal(moved, x)
    assert to_chwn(moved) is moved
    assert torch.equal(to_chwn(x.to(memory_format=torch.channels_last)), x)


def test_a_pooled_map_may_be_changed_in_place():
    """As with torch, whose max pooling keeps its input and not its output."""
    torch.manual_seed(0)
    x = torch.randn(9, 6, 8, 6)
    outcomes = []
    for change in (lambda model: None, use_chwn):
        model = nn.Sequential(nn.ReLU(), nn.MaxPool2d(2), nn.Hardtanh(0.2, 0.8, inplace=True))
        change(model)
        given = to_chwn(x).clone(memory_format=torch.preserve_format).requires_grad_()
        y = model(given)
        y.backward(torch.ones_like(y))
        outcomes.append((y.detach(), given.grad))
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(*outcomes, strict=True))


@pytest.mark.parametrize("watch", ["patched", "global"])
def test_modules_that_somebody_watches_are_called_by_themselves(watch):
    seen = []
    model = nn.Sequential(nn.ReLU(), nn.MaxPool2d(2))
    use_chwn(model)
    if watch == "patched":
        original = model[0].forward
        model[0].forward = lambda x: (seen.append("patched"), original(x))[1]
    else:
        hook = nn.modules.module.register_module_forward_hook(lambda module, *_: seen.append(type(module).__name__))
    try:
        model(to_chwn(torch.randn(9, 6, 8, 6)))
    finally:
        if watch == "global":
            hook.remove()
    assert seen == (["patched"] if watch == "patched" else ["ReLU", "ChwnMaxPool2d", "ChwnSequential"])
