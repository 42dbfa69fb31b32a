"""Runs that start from the weights of others."""

import pytest
import torch
from safetensors.torch import save_file

import regrow
from regrow.config import Sparse
from regrow.errors import ConfigurationError, StartWarning, StateError
from regrow.training.pretrained import load_weights
from regrow.training.run import Run
from regrow.training.setup import build_model, load_split
from regrow.training.stored import load_model
from tests.training.tiny import config, write_data


@pytest.fixture(scope="module")
def dense(tmp_path_factory):
    """A dense run of a few steps: its data, folder and network."""
    folder = tmp_path_factory.mktemp("dense")
    data = write_data(folder / "data.npz")
    Run(config(data, sparse=Sparse(method="dense", density=1.0), max_steps=12), folder / "run").train()
    return data, folder / "run", load_model(folder / "run").network


def started(data, folder, source, start):
    sparse = Sparse(density=0.5, update_every=3, start=start)
    return Run(config(data, sparse=sparse, weights=str(source), max_steps=6), folder)


@pytest.mark.parametrize("kind", ["run", "file", "shipped"])
def test_the_largest_weights_of_a_run_or_file_are_kept(dense, tmp_path, kind):
    data, source, network = dense
    if kind == "file":
        source = tmp_path / "weights.safetensors"
        save_file({name: tensor.contiguous() for name, tensor in network.state_dict().items()}, source)
    if kind == "shipped":
        source = tmp_path / "weights.safetensors"
        regrow.save(source, network, {})
    run = started(data, tmp_path / "run", source, "magnitude")
    for name, mask in run.parts.handle.masks.items():
        weight = network.get_parameter(f"{name}.weight").detach()
        assert torch.equal(run.parts.network.get_parameter(f"{name}.weight").detach(), weight * mask)
        assert weight[mask].abs().min() >= weight[~mask].abs().max()


def test_a_run_from_weights_resumes_with_the_same_bits(dense, tmp_path):
    data, source, _ = dense
    whole, parted = (started(data, tmp_path / name, source, "magnitude") for name in ("whole", "parted"))
    whole.train()
    parted.stop_requested = True
    assert parted.train() is None
    again = started(data, tmp_path / "parted", source, "magnitude")
    assert again.step > 0
    again.train()
    for a, b in zip(whole.parts.network.parameters(), again.parts.network.parameters(), strict=True):
        assert torch.equal(a, b)


def test_without_a_start_there_is_a_warning(dense, tmp_path):
    data, source, _ = dense
    with pytest.warns(StartWarning, match="look trained.*start='magnitude'"):
        started(data, tmp_path / "run", source, "")


def test_weights_that_do_not_fit_are_refused_whole(dense, tmp_path):
    data, _, network = dense
    fresh = build_model(config(data), load_split(config(data), "test"))
    before = {name: tensor.clone() for name, tensor in fresh.state_dict().items()}
    states = network.state_dict()
    cases = {
        "a": ({**states, "10.weight": torch.zeros(7, 16)}, r"10.weight of shape \(7, 16\), the model \(4, 16\)"),
        "b": ({name: tensor for name, tensor in states.items() if name != "0.bias"}, "has no 0.bias"),
        "c": ({**states, "head": torch.zeros(2)}, "has head, which the model has not"),
    }
    for name, (tensors, message) in cases.items():
        file = tmp_path / f"{name}.safetensors"
        save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, file)
        with pytest.raises(StateError, match=message):
            load_weights(fresh, str(file))
    (tmp_path / "broken.safetensors").write_bytes(b"no")
    with pytest.raises(StateError, match="cannot be read as safetensors"):
        load_weights(fresh, str(tmp_path / "broken.safetensors"))
    with pytest.raises(StateError, match="has no checkpoint to take weights from"):
        load_weights(fresh, str(tmp_path))
    with pytest.raises(ConfigurationError, match=r"pickled weights are not read"):
        load_weights(fresh, str(tmp_path / "model.pt"))
    assert all(torch.equal(before[name], tensor) for name, tensor in fresh.state_dict().items())
