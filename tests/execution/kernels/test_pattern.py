"""Plans of one pattern: lists for few samples beside those for any number."""

import pytest
import torch

from regrow import native
from regrow.execution import Geometry, SparsePattern
from regrow.execution.kernels import passes
from regrow.execution.kernels.pattern import MOST_LANES, Plans, runs_across

pytestmark = pytest.mark.skipif(not native.available(), reason="native kernels not built")
SAME = Geometry((3, 3), (1, 1), (1, 1, 1, 1))


def layer(geometry, seed=0):
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(7, 5, *geometry.kernel, generator=generator) < 0.4
    return SparsePattern(mask, geometry), torch.randn(mask.shape, generator=generator) * mask


@pytest.mark.parametrize(
    "geometry", [SAME, Geometry((3, 3)), Geometry((5, 3), padding=(2, 4, 2, 4), dilation=(1, 2)), Geometry((1, 4))]
)
def test_batches_of_any_size_alternate_and_agree_to_the_last_bit(geometry):
    pattern, weight = layer(geometry)
    x = torch.randn(40, 5, 12, 13, generator=torch.Generator().manual_seed(1))
    whole, present = passes.forward(x, weight, None, pattern)
    grad = torch.randn(whole.shape, generator=torch.Generator().manual_seed(2))
    for samples in (1, 3, 20, 1, 9, 15, 3, 16):
        dw, few = torch.zeros_like(weight), (x[:samples].double(), weight.double(), grad[:samples].double())
        y, _ = passes.forward(x[:samples], weight, None, pattern)
        dx, _ = passes.backward(x[:samples], grad[:samples], present, pattern, dw)
        assert torch.equal(y, whole[:samples])
        expected = torch.zeros_like(few[1])
        double = SparsePattern(pattern.mask, geometry)
        wanted, _ = passes.backward(few[0], few[2], few[1][pattern.mask], double, expected)
        torch.testing.assert_close(dx.double(), wanted, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(dw.double(), expected, rtol=1e-4, atol=1e-3)


def test_lists_are_for_few_samples_only_where_that_changes_them():
    pattern, weight = layer(SAME)
    x = torch.randn(MOST_LANES + 1, 5, 12, 13)
    assert runs_across(pattern.shape, SAME, 12, 13, torch.float32, 1)
    for samples in (MOST_LANES, MOST_LANES + 1):
        assert not runs_across(pattern.shape, SAME, 12, 13, torch.float32, samples)
        passes.forward(x[:samples], weight, None, pattern)
    plans = pattern.support.derive(Plans, Plans)
    assert len(plans._found) == 1
    passes.forward(x[:1], weight, None, pattern)
    assert len(plans._found) == 2
    small = Geometry((3, 3), (2, 2), (1, 1, 1, 1))
    assert not runs_across(pattern.shape, small, 12, 13, torch.float32, 1)  # strides
    assert not runs_across(pattern.shape, SAME, 2, 2, torch.float32, 1)  # a map of four pixels
