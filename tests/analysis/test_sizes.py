import pytest
import torch
from torch import nn

from regrow.analysis.sizes import EmptyChannels, Storage, empty_channels, parameter_share, storage, weights_share
from regrow.models.cost import cost


def test_shares_count_weights_and_everything_stored():
    count = cost(nn.Sequential(nn.Linear(10, 10), nn.LayerNorm(10), nn.Linear(10, 10, bias=False)), (10,))
    assert weights_share(count, {"0": 10, "2": 30}) == 40 / 200
    assert weights_share(count, {"0": 10}) == 110 / 200
    assert parameter_share(count, {"0": 10, "2": 30}) == (40 + 10 + 20) / (200 + 10 + 20)


@pytest.mark.parametrize(
    ("shape", "nonzeros", "expected"),
    [
        ((10, 100), 1000, Storage(4000, 125 + 4000, 4000 + 1000 + 44)),
        ((10, 256), 1, Storage(10240, 320 + 4, 4 + 1 + 44)),
        ((10, 257), 1, Storage(10280, 322 + 4, 4 + 2 + 44)),
        ((2, 70000), 3, Storage(560000, 17500 + 12, 12 + 12 + 12)),
        ((64, 3, 3, 3), 100, Storage(6912, 216 + 400, 400 + 100 + 260)),
    ],
)
def test_bytes_of_three_formats(shape, nonzeros, expected):
    assert storage(shape, nonzeros) == expected


def test_storage_adds_up():
    assert Storage(1, 2, 3) + Storage(10, 20, 30) == Storage(11, 22, 33)


def test_empty_channels_of_a_convolution():
    mask = torch.zeros(4, 3, 3, 3, dtype=torch.bool)
    mask[1, 2, 0, 0] = mask[3, 2, 2, 2] = True
    assert empty_channels(mask) == EmptyChannels(inputs=2, outputs=2)
    assert empty_channels(torch.ones(4, 3, dtype=torch.bool)) == EmptyChannels(0, 0)
    assert empty_channels(torch.tensor([True, False])) == EmptyChannels(0, 1)
