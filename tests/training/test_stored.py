"""Runs on disk: one way to their masks, evaluated on sparse kernels."""

import pytest
import torch

from regrow.bench import masks as bench_masks
from regrow.errors import StateError
from regrow.execution import available, execution_of
from regrow.shipping.export import read_run
from regrow.training.run import Run
from regrow.training.stored import DENSEST, checkpoint_in, compute_sparse, evaluate_run, load_model
from tests.training.tiny import config, write_data

needs_kernels = pytest.mark.skipif(not available(), reason="the native kernels are not built here")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stored")
    run = Run(config(write_data(folder / "data.npz")), folder / "run")
    run.train()
    return run


def same(found, expected):
    return found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in expected)


def mostly_missing(masks):
    return [name for name, mask in masks.items() if mask.float().mean() <= DENSEST]


def test_every_reader_has_the_masks_of_training(run):
    trained = {f"{name}.weight": mask for name, mask in run.parts.handle.masks.items()}
    stored = load_model(run.folder)
    assert same(stored.masks, trained)
    assert same(checkpoint_in(run.checkpoints.paths()[-1]).masks, trained), "a checkpoint may be named itself"
    assert same(read_run(run.folder).masks, trained)
    shown = bench_masks.of_run(run.folder, stored.network).masks
    assert same({f"{name}.weight": mask for name, mask in shown.items()}, trained)
    assert stored.step == run.step
    assert not stored.unfinished


@needs_kernels
def test_evaluation_is_sparse_and_the_same(run):
    sparse, masked = evaluate_run(run.folder), evaluate_run(run.folder, execution="masked")
    assert (sparse.sparse, masked.sparse) == (len(mostly_missing(run.parts.handle.masks)), 0)
    assert 0 < sparse.sparse < sparse.layers, "full layers stay dense"
    assert sparse.layers == len(run.parts.handle.masks)
    assert sparse.scores.loss == pytest.approx(masked.scores.loss, rel=1e-5)
    assert sparse.scores.samples == masked.scores.samples


@needs_kernels
def test_layers_that_kernels_would_get_wrong_or_slow_stay_dense(run):
    stored = load_model(run.folder)
    first, second = mostly_missing(stored.masks)[:2]
    stored.masks[first] = torch.ones_like(stored.masks[first])
    unfinished = type(stored)(stored.step, stored.config, stored.network, stored.masks, frozenset({second}))
    assert compute_sparse(unfinished) == len(mostly_missing(stored.masks)) - 1 == 0
    modules = dict(stored.network.named_modules())
    assert all(execution_of(modules[name.removesuffix(".weight")]) is None for name in (first, second))


def test_a_folder_without_a_checkpoint_is_refused(tmp_path):
    with pytest.raises(StateError, match="has no checkpoint"):
        checkpoint_in(tmp_path)
