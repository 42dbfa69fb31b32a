import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from regrow.models.shapes import after_conv, after_pool


@given(size=st.integers(11, 40), kernel=st.integers(1, 11), stride=st.integers(1, 3), padding=st.integers(0, 3))
def test_after_conv_agrees_with_torch(size, kernel, stride, padding):
    layer = nn.Conv2d(1, 2, kernel, stride=stride, padding=padding, device="meta")
    actual = layer(torch.empty(1, 1, size, size + 1, device="meta")).shape[1:]
    assert after_conv((1, size, size + 1), 2, kernel, stride, padding) == tuple(actual)


def test_after_pool():
    assert after_pool((5, 9, 8)) == (5, 4, 4)


def test_too_small():
    with pytest.raises(ValueError, match="5x5 convolution does not fit into a map of 4x4"):
        after_conv((1, 4, 4), 1, kernel=5)
