"""Stacks of sparse linear layers: the numbers of the layers one by one, bit for bit."""

from itertools import pairwise

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

from regrow import native
from regrow.execution import attach, restore
from regrow.execution.modules import stack
from regrow.execution.modules.chwn import use_chwn

pytestmark = pytest.mark.skipif(not native.available(), reason="native kernels not built")


def network(widths, bias=True, density=0.3, dtype=torch.float32, reach=False):
    """Linear layers with ReLUs between, and their sparse executions."""
    torch.manual_seed(0)
    modules, executions = [], []
    for inputs, outputs in pairwise(widths):
        layer = nn.Linear(inputs, outputs, bias=bias, dtype=dtype)
        mask = torch.rand(outputs, inputs) < density
        layer.weight.data.mul_(mask)
        executions.append(attach(layer, mask, mask | (torch.rand(outputs, inputs) < 0.2) if reach else None))
        modules += [layer, nn.ReLU()]
    return nn.Sequential(*modules[:-1]), executions


def outcome(model, x, executions, dense, wants_input=True):
    """Output and all gradients."""
    for execution in executions:
        execution.dense_gradient(dense)
    model.zero_grad()
    x = x.clone().requires_grad_(wants_input)
    y = model(x)
    y.backward(torch.randn(y.shape, generator=torch.Generator().manual_seed(5), dtype=y.dtype))
    return [y.detach(), x.grad, *(parameter.grad.clone() for parameter in model.parameters())]


def both_ways(model, *arguments):
    """One by one, and stacked."""
    alone = outcome(model, *arguments)
    use_chwn(model)
    stacked = outcome(model, *arguments)
    restore(model)
    return alone, stacked


@given(
    widths=st.lists(st.integers(1, 40), min_size=3, max_size=5),
    samples=st.integers(1, 40),
    bias=st.booleans(),
    dense=st.booleans(),
    wants_input=st.booleans(),
    reach=st.booleans(),
    density=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
@example([1, 1, 1], 12, False, True, False, False, 1.0, torch.float32)
def test_same_bits_as_layers_one_by_one(widths, samples, bias, dense, wants_input, reach, density, dtype):
    model, executions = network(widths, bias, density, dtype, reach)
    x = torch.randn(samples, widths[0], generator=torch.Generator().manual_seed(1), dtype=dtype)
    assert stack.length(list(model), x) == len(model)
    for alone, stacked in zip(*both_ways(model, x, executions, dense, wants_input), strict=True):
        assert (alone is None) == (stacked is None)
        if dense and alone is not None:  # torch's own products of a growth window round by the order of memory
            torch.testing.assert_close(alone, stacked)
        else:
            assert alone is None or torch.equal(alone, stacked)


def test_a_large_output_leaves_as_the_input_came(monkeypatch):
    model, executions = network([7, 9, 5])
    x = torch.randn(6, 7)
    use_chwn(model)
    assert not model(x).is_contiguous()
    monkeypatch.setattr(stack, "_LARGE", 30)
    assert model(x).is_contiguous()
    assert not model(x.t().contiguous().t()).is_contiguous()
    for alone, stacked in zip(*both_ways(model, x, executions, False), strict=True):
        assert torch.equal(alone, stacked)


def test_gradients_add_up_and_a_kept_graph_serves_twice():
    model, _ = network((6, 5, 4))
    use_chwn(model)
    y = model(torch.randn(7, 6)).sum()
    y.backward(retain_graph=True)
    once = [parameter.grad.clone() for parameter in model.parameters()]
    y.backward()
    for parameter, first in zip(model.parameters(), once, strict=True):
        torch.testing.assert_close(parameter.grad, 2 * first)


@pytest.mark.parametrize(
    ("modules", "expected"),
    [
        (lambda m: m, 5),
        (lambda m: m[:4], 3),  # a ReLU at the end has no layer behind it
        (lambda m: [m[0], m[2], m[4]], 0),  # nothing between the layers
        (lambda m: [m[0], nn.Tanh(), m[2]], 0),
        (lambda m: [m[0], m[1], nn.Linear(5, 4), m[3], m[4]], 0),
        (lambda m: m[1:], 0),
        (lambda m: m[:1], 0),
    ],
)
def test_what_makes_a_stack(modules, expected):
    model, _ = network((6, 5, 4, 3))
    assert stack.length(modules(list(model)), torch.zeros(2, 6)) == expected


@pytest.mark.parametrize("x", [torch.zeros(0, 6), torch.zeros(2, 3, 6), torch.zeros(2, 6, dtype=torch.float64)])
def test_inputs_that_are_not_plain_features_go_layer_by_layer(x):
    model, _ = network((6, 5, 4))
    assert stack.length(list(model), x) == 0


def test_hooks_see_their_layer():
    model, _ = network((6, 5, 4, 3))
    use_chwn(model)
    seen = []
    hook = model[2].register_forward_hook(lambda module, inputs, output: seen.append(tuple(output.shape)))
    model(torch.zeros(2, 6))
    assert seen == [(2, 4)]
    hook.remove()
    model(torch.zeros(2, 6))
    assert seen == [(2, 4)]


def test_nan_passes_as_in_torch():
    model, executions = network((6, 5, 4), density=1.0)
    x = torch.randn(3, 6)
    x[1, 2] = float("nan")
    for alone, stacked in zip(*both_ways(model, x, executions, False), strict=True):
        torch.testing.assert_close(alone, stacked, rtol=0, atol=0, equal_nan=True)


def test_wrong_width_is_named():
    model, _ = network((6, 5, 4))
    use_chwn(model)
    with pytest.raises(ValueError, match=r"shape \(2, 7\), expected \(\.\.\., 6\)"):
        model(torch.zeros(2, 7))


def test_a_pass_keeps_the_masks_it_was_made_with():
    model, executions = network((6, 5, 4))
    use_chwn(model)
    x = torch.randn(7, 6, requires_grad=True)
    expected = torch.autograd.grad(model(x).square().sum(), [x, *model.parameters()])
    y = model(x).square().sum()
    executions[0].update(~executions[0].pattern.mask)
    executions[1].update(torch.ones(4, 5, dtype=torch.bool))
    for found, right in zip(torch.autograd.grad(y, [x, *model.parameters()]), expected, strict=True):
        assert torch.equal(found, right)


def test_weights_that_change_between_the_passes_are_refused():
    model, _ = network((6, 5, 4))
    use_chwn(model)
    y = model(torch.randn(7, 6)).sum()
    with torch.no_grad():
        model[0].weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


@pytest.mark.parametrize("widths", [(10, 20, 64, 5), (64, 5, 10, 20)])
def test_layers_that_do_not_fit_each_other_are_refused(widths):
    """Read past the end of each other's features, they would compute with whatever lies there."""
    first, middle = network(widths[:2])[0], network(widths[2:])[0]
    model = nn.Sequential(first[0], nn.ReLU(), middle[0])
    use_chwn(model)
    with pytest.raises(ValueError, match=rf"expected \(\.\.\., {widths[2]}\)"):
        model(torch.randn(8, widths[0]))


def test_a_weight_that_its_pattern_does_not_fit_is_refused():
    model, _ = network((10, 20, 5))
    use_chwn(model)
    model[2].weight = nn.Parameter(torch.zeros(3, 20))
    with pytest.raises((ValueError, RuntimeError)):
        model(torch.randn(8, 10))
