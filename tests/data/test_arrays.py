import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from regrow.data import DataError
from regrow.data.arrays import Normalisation, hold_out_per_class, hold_out_tail, labelled_images

LABELS = np.array([0, 1, 2])


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((3, 5, 6), (3, 1, 5, 6)),
        ((3, 5, 6, 3), (3, 3, 5, 6)),
        ((3, 3, 5, 6), (3, 3, 5, 6)),
        ((3, 5, 6, 1), (3, 1, 5, 6)),
    ],
)
def test_images_become_channels_first(shape, expected):
    images = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    samples = labelled_images(images, LABELS.astype(np.uint8), "x")
    assert samples.images.shape == expected
    assert samples.labels.dtype == np.int64
    if shape[-1] == 3:
        assert samples.images[1, 2, 3, 4] == images[1, 3, 4, 2]


def test_columns_of_labels_and_double_precision_are_accepted():
    samples = labelled_images(np.zeros((3, 2, 2)), LABELS[:, None], "x")
    assert samples.labels.tolist() == [0, 1, 2]
    assert samples.images.dtype == np.float32


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (np.zeros(3, np.uint8), LABELS, r"images must be .* not \[3\]"),
        (np.zeros((3, 5, 5, 5), np.uint8), LABELS, "1, 3 or 4 channels"),
        (np.zeros((3, 5, 5), np.int32), LABELS, "uint8 or floating point, not int32"),
        (np.full((3, 5, 5), np.nan), LABELS, "NaN or infinity"),
        (np.zeros((3, 5, 5), np.uint8), LABELS[:2], "3 images but 2 labels"),
        (np.zeros((3, 5, 5), np.uint8), LABELS.astype(float), "labels must be integers .* not float64"),
        (np.zeros((0, 5, 5), np.uint8), LABELS[:0], "no samples"),
        (np.zeros((3, 5, 5), np.uint8), np.array([0, -2, 1]), "label -2 at index 1 is negative"),
    ],
)
def test_bad_arrays(images, labels, message):
    with pytest.raises(DataError, match=f"file.x: .*{message}"):
        labelled_images(images, labels, "file.x")


def test_the_papers_hold_out():
    kept, held = hold_out_tail(np.zeros(60_000))
    assert (kept[0], kept[-1], held[0], held[-1]) == (0, 53_999, 54_000, 59_999)
    assert len(hold_out_tail(np.zeros(50_000))[0]) == 45_000


@given(hnp.arrays(np.int64, st.integers(1, 80), elements=st.integers(0, 6)))
def test_hold_out_per_class(labels):
    kept, held = hold_out_per_class(labels)
    assert sorted([*kept, *held]) == list(range(len(labels)))
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        expected = 0 if len(members) == 1 else max(1, len(members) // 10)
        assert held[labels[held] == label].tolist() == members[len(members) - expected :].tolist()


def test_normalisation_of_own_data():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (50, 3, 5, 5), dtype=np.uint8)
    measured = Normalisation.of(labelled_images(images, np.zeros(50, int), "x"))
    assert measured.mean == pytest.approx((images / 255).mean((0, 2, 3)))
    assert measured.std == pytest.approx((images / 255).std((0, 2, 3)))
    floats = Normalisation.of(labelled_images(images / 7, np.zeros(50, int), "x"))
    assert floats.mean == pytest.approx((images / 7).mean((0, 2, 3)))


def test_constant_channel_is_not_divided_by_zero():
    assert Normalisation.of(labelled_images(np.full((4, 3, 3), 9, np.uint8), np.zeros(4, int), "x")).std == (1.0,)
