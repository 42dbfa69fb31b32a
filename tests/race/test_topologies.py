"""Masks that a run keeps along its way."""

import pytest
import torch

from regrow.errors import StateError
from regrow.race.topologies import keep, kept
from tests.support.training import sparse_run


def changed(handle):
    """The masks with one weight moved in each layer."""
    masks = {}
    for sparse in handle.parameters:
        mask = sparse.mask.clone().view(-1)
        mask[mask.nonzero()[0]] = False
        mask[(~mask).nonzero()[-1]] = True
        masks[sparse.name] = mask.view(sparse.mask.shape)
    handle.network.set_masks(masks)


def test_kept_masks_come_back_by_step(tmp_path):
    _, _, handle = sparse_run()
    first = {sparse.name: sparse.mask.clone() for sparse in handle.parameters}
    keep(tmp_path, 0, handle, every=10)
    keep(tmp_path, 10, handle, every=10)  # nothing changed
    changed(handle)
    keep(tmp_path, 15, handle, every=10)
    changed(handle)
    keep(tmp_path, 20, handle, every=10)  # too soon
    found = kept(tmp_path, handle)
    assert list(found) == [0, 15]
    assert all(torch.equal(found[0][name], mask) for name, mask in first.items())
    assert any(not torch.equal(found[15][name], mask) for name, mask in first.items())


def test_masks_behind_the_step_that_a_run_goes_on_from_are_dropped(tmp_path):
    _, _, handle = sparse_run()
    keep(tmp_path, 0, handle, every=1)
    changed(handle)
    keep(tmp_path, 8, handle, every=1)
    changed(handle)
    keep(tmp_path, 5, handle, every=1)
    assert list(kept(tmp_path, handle)) == [0, 5]


def test_a_damaged_file_is_named(tmp_path):
    _, _, handle = sparse_run()
    keep(tmp_path, 0, handle, every=1)
    (path,) = (tmp_path / "masks").iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StateError, match="is damaged"):
        kept(tmp_path, handle)
