import pytest
import torch

from regrow.analysis.sizes import EmptyChannels, Storage, empty_channels, storage


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
