"""Dropout on native kernels: torch's numbers, bit for bit."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from regrow import native
from regrow.execution import restore
from regrow.execution.kernels.layout import is_chwn, to_chwn
from regrow.execution.modules import dropout
from regrow.execution.modules.chwn import use_chwn

pytestmark = pytest.mark.skipif(not native.available(), reason="native kernels not built")
exact = pytest.mark.skipif(not dropout.same_stream(), reason="torch draws random numbers in another way on this CPU")


@exact
@given(
    seed=st.integers(0, 2**60),
    p=st.floats(0, 1),
    counts=st.lists(st.integers(1, 2000), min_size=1, max_size=4),
    burnt=st.integers(0, 700),
)
def test_numbers_and_state_are_those_of_torch(seed, p, counts, burnt):
    """From any place in a block of the generator, an odd one too, and on from there."""
    ours, theirs = (torch.Generator().manual_seed(seed) for _ in range(2))
    for generator in (ours, theirs):
        torch.empty(burnt).uniform_(generator=generator)
    for count in counts:
        drawn = torch.empty(count).bernoulli_(p, generator=theirs)
        assert torch.equal(dropout.bernoulli(count, p, ours).float(), drawn)
        assert torch.equal(ours.get_state(), theirs.get_state())
    assert torch.equal(torch.randn(5, generator=ours), torch.randn(5, generator=theirs))


def outcome(module, x):
    torch.manual_seed(3)
    x = x.clone(memory_format=torch.preserve_format).requires_grad_()
    y = module(x)
    y.backward(torch.randn(y.shape, generator=torch.Generator().manual_seed(5)))
    return y.detach(), x.grad, torch.default_generator.get_state()


@exact
@pytest.mark.parametrize("p", [0.1, 0.3, 0.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("order", [to_chwn, torch.Tensor.contiguous])
def test_output_gradient_and_generator_are_those_of_torch(p, dtype, order):
    model = nn.Sequential(nn.Dropout(p))
    x = order(torch.randn(20, 6, 7, 9, dtype=dtype))
    x[1, 2, 3, 4] = float("nan")
    expected = outcome(model, x)
    assert use_chwn(model) == ["", "0"]
    assert dropout.takes(model[0], x)
    for mine, theirs in zip(outcome(model, x), expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0, equal_nan=True)
    assert is_chwn(outcome(model, x)[0]) == is_chwn(x)
    restore(model)
    assert type(model[0]) is nn.Dropout


@pytest.mark.parametrize(
    ("module", "x"),
    [
        (nn.Dropout(0.5).eval(), torch.ones(100, 100)),
        (nn.Dropout(0.0), torch.ones(100, 100)),
        (nn.Dropout(1.0), torch.ones(100, 100)),
        (nn.Dropout(0.5, inplace=True), torch.ones(100, 100)),
        (nn.Dropout(0.5), torch.ones(10, 10)),
        (nn.Dropout(0.5), torch.ones(200, 100)[::2]),
        (nn.Dropout(0.5), torch.ones(100, 100, dtype=torch.bfloat16)),
    ],
)
def test_torch_does_the_rest(module, x):
    assert not dropout.takes(module, x)
    torch.manual_seed(3)
    expected = nn.functional.dropout(x.clone(), module.p, module.training)
    use_chwn(module)
    torch.manual_seed(3)
    assert torch.equal(module(x.clone()), expected)


def test_another_stream_is_noticed(monkeypatch):
    dropout.same_stream.cache_clear()
    monkeypatch.setattr(dropout, "bernoulli", lambda count, p, generator: torch.zeros(count, dtype=torch.uint8))
    assert not dropout.same_stream()
    dropout.same_stream.cache_clear()
