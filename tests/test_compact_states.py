"""Compact storage: saved, loaded, copied, averaged, given back."""

import copy
import io

import pytest
import torch

import regrow
from regrow.errors import ExecutionWarning, StateError
from tests.support.compact import Run, assert_same, batch, network


def test_weights_are_readable_and_load_in_plain_torch():
    run = Run().run()
    plain = network()
    plain.load_state_dict(run.model.state_dict())
    inputs, _ = batch(0)
    run.model.eval()
    torch.testing.assert_close(plain(inputs), run.model(inputs), rtol=1e-4, atol=1e-5)
    for layer, twin in zip(run.model, plain, strict=True):
        if hasattr(twin, "weight"):
            assert torch.equal(layer.weight, twin.weight)
            assert layer.weight.shape == twin.weight.shape
    assert str(run.model) == str(plain)


@pytest.mark.parametrize("form", ["dense", "compact"])
@pytest.mark.parametrize("order", ["model first", "handle first"])
@pytest.mark.parametrize("method", ["sparse-momentum", "rigl", "set"])
def test_a_resumed_run_ends_as_one_without_interruption(method, order, form):
    whole, half = Run(method=method).run(), Run(method=method).run(7)
    if form == "compact":
        with regrow.compact_form():
            weights = half.model.state_dict()
    else:
        weights = half.model.state_dict()
    saved = io.BytesIO()
    torch.save((weights, half.optimizer.state_dict(), half.handle.state_dict()), saved)
    saved.seek(0)
    weights, state, masks = torch.load(saved, weights_only=True)
    resumed = Run(method=method)
    resumed.optimizer.load_state_dict(state)
    if order == "handle first":
        resumed.handle.load_state_dict(masks)
    resumed.model.load_state_dict(weights)
    if order == "model first":
        resumed.handle.load_state_dict(masks)
    assert_same(resumed.run(), whole)


def test_the_compact_form_holds_present_weights_only():
    run = Run().run(4)
    with regrow.compact_form():
        state = run.model.state_dict()
    assert sum(t.numel() for name, t in state.items() if name.endswith("values")) == run.handle.nonzeros
    assert not any(name.endswith("weight") for name in state)


def test_damaged_compact_forms_are_refused():
    run = Run().run(4)
    with regrow.compact_form():
        state = run.model.state_dict()
    damage = {
        "5.weight.columns": lambda t: t.flip(0),
        "5.weight.rows": lambda t: t[:-1],
        "5.weight.shape": lambda t: t + 1,
        "5.weight.values": lambda t: t[1:],
    }
    for key, change in damage.items():
        with pytest.raises(StateError, match=r"5\.weight"):
            run.model.load_state_dict({**state, key: change(state[key])})


def test_weights_of_other_masks_are_refused_at_the_next_step():
    run, other = Run(), Run(seed=1)
    run.model.load_state_dict(other.model.state_dict())
    with pytest.warns(ExecutionWarning), pytest.raises(StateError, match="lie outside its mask"):
        run.step()


def test_states_of_the_other_storage_are_refused():
    run, other = Run(), Run("dense")  # a handle does not keep its optimizer
    with pytest.raises(StateError, match="storage"):
        run.handle.load_state_dict(other.handle.state_dict())


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)], ids=str)
def test_copies_train_on_apart_and_alike(order):
    run = Run().run(5)
    run.optimizer.zero_grad()  # gradients are not copied
    parts = (run.model, run.optimizer, run.handle)
    copied = dict(zip(order, copy.deepcopy([parts[i] for i in order]), strict=True))
    twin = copy.copy(run)
    twin.model, twin.optimizer, twin.handle = copied[0], copied[1], copied[2]
    twin.handle.model  # noqa: B018  (else its first pass is dense)
    assert_same(run, twin)
    twin.run()
    assert run.handle.step == 5
    assert_same(run.run(), twin)


def test_a_lone_copy_is_a_dense_model_for_averages():
    run = Run().run(4)
    averaged = torch.optim.swa_utils.AveragedModel(run.model)
    for _ in range(4):
        run.step()
        averaged.update_parameters(copy.deepcopy(run.model))
    run.handle.mask_(averaged)
    weights = dict(averaged.module.named_parameters())
    for name, mask in run.handle.masks.items():
        weight = weights[f"{name}.weight"]
        assert weight.shape == mask.shape
        assert not bool((weight[~mask] != 0).any())


def test_densify_and_detach_give_the_dense_parameter_back():
    run, dense = Run().run(5), Run("dense").run(5)
    parameters = list(run.model.parameters())
    run.handle.densify()
    assert_same(run, dense)
    assert all(a is b for a, b in zip(run.model.parameters(), parameters, strict=True))
    assert [p.shape for p in parameters] == [p.shape for p in dense.model.parameters()]
    run.handle.execute("sparse")
    assert_same(run.run(), dense.run())
    run.handle.detach()
    assert [type(m) for m in run.model] == [type(m) for m in network()]
    run.loss(0).backward()
    assert all(p.grad.shape == p.shape for p in run.model.parameters())


def test_masks_from_zeros():
    runs = [Run(storage).run(5) for storage in ("compact", "dense")]
    for run in runs:
        for sparse in run.handle.parameters:
            sparse.parameter.data[sparse.parameter.data.abs() < 0.05] = 0
        run.handle.masks_from_zeros()
        run.run()
    assert_same(*runs)


def test_pickled_networks_compute_the_same():
    run = Run().run(4)
    saved = io.BytesIO()
    torch.save(run.model, saved)
    saved.seek(0)
    loaded = torch.load(saved, weights_only=False)
    torch.testing.assert_close(loaded(batch(0)[0]), run.model(batch(0)[0]), rtol=1e-4, atol=1e-5)


def test_nothing_dense_is_left_in_a_handle_outside_windows():
    run = Run(method="set", density=0.05).run(4)
    sizes = {sparse.name: sparse.shape.numel() for sparse in run.handle.parameters}
    memory = run.handle.memory()
    for row in memory:
        if row.sparse:
            assert row.weights == row.gradients == 4 * row.present
            assert row.masks < 4 * sizes[f"{row.layer}.weight"] * 0.2 + 8 * (row.shape[0] + 1)
            assert row.evidence == 0


def test_shipped_networks_are_those_of_dense_storage(tmp_path):
    inputs, outputs, files = batch(0)[0], [], []
    for storage in ("compact", "dense"):
        run = Run(storage).run(4)
        run.model.eval()
        regrow.save(tmp_path / f"{storage}.safetensors", run.handle)
        files.append((tmp_path / f"{storage}.safetensors").stat().st_size)
        outputs.append(run.handle.freeze(inputs)(inputs))
    assert torch.equal(*outputs)
    assert files[0] == files[1]
