import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regrow import native
from regrow.data import memory
from regrow.data.arrays import LabelledImages, Normalisation
from regrow.data.memory import Affine, ArrayDataset
from regrow.execution.kernels.layout import is_chwn


def make(samples=57, augment=False, shuffle=True, dtype=np.uint8, channels=3):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (samples, channels, 8, 8)).astype(dtype)
    images[:, 0, 3, 3] = np.arange(samples)
    labelled = LabelledImages(images, np.arange(samples))
    normalisation = Normalisation((0.5, 0.4, 0.3)[:channels], (0.2, 0.3, 0.1)[:channels])
    names = tuple(map(str, range(samples)))
    dataset = ArrayDataset(
        labelled, normalisation, name="toy", split="train", class_names=names, augment=augment, shuffle=shuffle
    )
    return dataset, images


def test_batches_are_normalised_images_with_their_labels():
    dataset, images = make()
    mean, std = (np.array(v)[:, None, None] for v in ((0.5, 0.4, 0.3), (0.2, 0.3, 0.1)))
    for x, y in dataset.batches(epoch=2, batch_size=10, seed=4):
        expected = (images[y.numpy()] / 255 - mean) / std
        assert x.dtype == torch.float32
        assert y.dtype == torch.int64
        torch.testing.assert_close(x, torch.from_numpy(expected).float(), rtol=1e-5, atol=2e-6)


def test_floating_point_images_are_not_divided_by_255():
    affine = Affine(Normalisation((1.0,), (2.0,)), torch.float32)
    assert affine(torch.full((1, 1, 1, 1), 5.0)).item() == 2.0


def test_stored_images_are_never_changed():
    dataset, _ = make(dtype=np.float32)
    first = [x.clone() for x, _ in dataset.batches(batch_size=20)]
    again = [x for x, _ in dataset.batches(batch_size=20)]
    assert all(map(torch.equal, first, again))


@settings(max_examples=25)
@given(
    batch_size=st.integers(4, 60),
    world=st.integers(1, 3),
    epoch=st.integers(0, 9),
    seed=st.integers(0, 2**63),
    augment=st.booleans(),
    data=st.data(),
)
def test_batches_do_not_depend_on_start_or_ranks(batch_size, world, epoch, seed, augment, data):
    dataset, _ = make(samples=60, augment=augment)
    whole = list(dataset.batches(epoch, batch_size, seed))
    assert len(whole) == dataset.steps_per_epoch(batch_size)
    assert sorted(torch.cat([y for _, y in whole]).tolist()) == list(range(60))
    start = data.draw(st.integers(0, len(whole)))
    tail = 60 % batch_size or batch_size
    if tail < world:
        return
    ranks = [list(dataset.batches(epoch, batch_size, seed, start, rank, world)) for rank in range(world)]
    for step, (x, y) in enumerate(whole[start:]):
        assert torch.equal(torch.cat([shares[step][0] for shares in ranks]), x)
        assert torch.equal(torch.cat([shares[step][1] for shares in ranks]), y)


def test_augmentation_differs_between_epochs_and_not_between_batch_sizes():
    dataset, _ = make(augment=True)

    def by_label(epoch, batch_size):
        pairs = [
            (int(y), x) for xs, ys in dataset.batches(epoch, batch_size, seed=1) for x, y in zip(xs, ys, strict=True)
        ]
        return torch.stack([x for _, x in sorted(pairs, key=lambda pair: pair[0])])

    assert torch.equal(by_label(0, 10), by_label(0, 57))
    assert not torch.equal(by_label(0, 10), by_label(1, 10))


def test_without_shuffling_the_order_is_the_stored_one():
    dataset, _ = make(shuffle=False)
    labels = torch.cat([y for _, y in dataset.batches(epoch=3, batch_size=10, seed=8)])
    assert labels.tolist() == list(range(57))


def test_sizes():
    dataset, _ = make()
    assert dataset.steps_per_epoch(10) == 6
    assert [len(y) for _, y in dataset.batches(batch_size=10)] == [10] * 5 + [7]
    assert (dataset.shape, dataset.num_classes, len(dataset)) == ((3, 8, 8), 57, 57)
    assert repr(dataset) == "ArrayDataset(toy train: 57 images 3x8x8, 57 classes)"


def test_wrong_arguments_are_reported_at_the_call():
    dataset, _ = make()
    with pytest.raises(ValueError, match=r"start_step must be in 0 \.\. 6"):
        dataset.batches(batch_size=10, start_step=7)


def test_global_generators_are_left_alone():
    dataset, _ = make(augment=True)
    torch.manual_seed(0)
    expected = torch.rand(2)
    torch.manual_seed(0)
    list(dataset.batches(batch_size=10))
    assert torch.equal(torch.rand(2), expected)


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 8, 8), (2, 3, 5), (1, 1, 1)])
@pytest.mark.parametrize("samples", [1, 7, 8, 100])
@pytest.mark.skipif(not native.available(), reason="native kernels not built")
def test_one_native_pass_makes_the_same_numbers(shape, samples, monkeypatch):
    rng = np.random.default_rng(1)
    images = rng.integers(0, 256, (130, *shape)).astype(np.uint8)
    normalisation = Normalisation((0.1307, 0.4822, 0.4465)[: shape[0]], (0.3081, 0.1994, 0.2010)[: shape[0]])
    dataset = ArrayDataset(
        LabelledImages(images, np.zeros(130, np.int64)), normalisation, name="toy", split="train", class_names=("0",)
    )
    plain, innermost = (next(dataset.batches(3, samples, 5, samples_innermost=how))[0] for how in (False, True))
    monkeypatch.setattr(memory, "available", lambda: False)
    expected = next(dataset.batches(3, samples, 5))[0]
    assert plain.is_contiguous()
    assert is_chwn(innermost)
    assert torch.equal(plain, expected)
    assert torch.equal(innermost, expected)
