"""Saved, loaded, and the same."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import regrow
from regrow import models
from regrow.cli.main import main
from regrow.errors import ConfigurationError, StateError
from regrow.shipping.freeze import Frozen
from regrow.training.stored import load_model
from tests.support.networks_to_ship import difference, masked, masks_of, shaken
from tests.training.tiny import config, write_data

PAGE = Path(__file__).parents[2] / "docs" / "shipping.md"


class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.first, self.last = nn.Linear(6, width), nn.Linear(width, 2)

    def forward(self, x):
        return self.last(torch.relu(self.first(x)))


PATH = f"{__name__}:Net"


@pytest.mark.parametrize("values", ["float32", "bfloat16"])
def test_there_and_back(tmp_path, values):
    model = shaken(models.create("lenet300-bn", seed=0))
    masks = masks_of(model, 0.1)
    masked(model, masks)
    path = tmp_path / "a.safetensors"
    size = regrow.save(
        path, model, masks, architecture="lenet300-bn", values=values, about={"input_shape": [1, 28, 28]}
    )
    assert size == path.stat().st_size
    x, close = torch.randn(3, 1, 28, 28), 5e-6 if values == "float32" else 2e-2
    for loaded in (regrow.load(path), regrow.load(path, dense=True)):
        assert not loaded.training
        assert difference(model(x), loaded(x)) < close
    assert isinstance(regrow.load(path), Frozen)
    assert type(regrow.load(path, dense=True)) is type(model)


def test_handle_brings_its_masks(tmp_path):
    model = Net(8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    handle = regrow.sparsify(model, optimizer, density=0.3, steps=10, update_every=2)
    regrow.save(tmp_path / "a", handle, architecture=Net, options={"width": 8})
    twin = regrow.load(tmp_path / "a", dense=True, allow=[PATH])
    assert int((twin.first.weight != 0).sum() + (twin.last.weight != 0).sum()) == handle.nonzeros
    with pytest.raises(ConfigurationError, match="needs the masks"):
        regrow.save(tmp_path / "b", model)


def test_own_class_only_with_permission_or_given(tmp_path):
    model = Net(5)
    masks = masks_of(model, 0.5)
    masked(model, masks)
    regrow.save(tmp_path / "a", model, masks, architecture=Net, options={"width": 5})
    with pytest.raises(ConfigurationError, match="was not imported"):
        regrow.load(tmp_path / "a")
    given = Net(5)
    before = given.first.weight.clone()
    x = torch.randn(2, 6)
    for loaded in (regrow.load(tmp_path / "a", allow=[PATH]), regrow.load(tmp_path / "a", model=given)):
        assert difference(model(x), loaded(x)) < 5e-6
    assert torch.equal(given.first.weight, before), "the caller's network is left as it is"
    with pytest.raises(StateError, match="has shape"):
        regrow.load(tmp_path / "a", model=Net(6))


@pytest.mark.parametrize(
    ("architecture", "options", "message"),
    [
        ("lenet301", {}, "did you mean 'lenet300'"),
        (PATH, {}, "give its class as architecture"),
        (Net, {"widht": 4}, "do not build this network .*widht"),
        (Net, {"width": 5}, r"do not build this network .*first.weight has shape \(4, 6\)"),
        ("lenet300", {}, "do not build this network .*is only in the"),
        (Net(), {}, "the name of a model or a class of networks, got a Net"),
        (dict, {}, "got a type"),
    ],
)
def test_an_architecture_that_builds_no_such_network_is_refused_when_saving(tmp_path, architecture, options, message):
    model = Net(4)
    with pytest.raises(ConfigurationError, match=message):
        regrow.save(tmp_path / "a", model, masks_of(model, 0.5), architecture=architecture, options=options)
    assert not (tmp_path / "a").exists()


class Counted(Net):
    def __init__(self):
        super().__init__(int(torch.full((), 4.0)))


def test_saving_draws_no_random_number_and_takes_networks_that_need_memory(tmp_path):
    before = torch.random.get_rng_state()
    for kind in (Net, Counted):
        model = kind()
        masks = masks_of(model, 0.5)
        torch.random.set_rng_state(before)
        regrow.save(tmp_path / "a", model, masks, architecture=kind)
        assert torch.equal(torch.random.get_rng_state(), before)
    assert regrow.load(tmp_path / "a", dense=True, model=Counted()).first.out_features == 4


def test_load_says_what_is_wrong_with_its_arguments(tmp_path):
    model = Net()
    regrow.save(tmp_path / "a", model, masks_of(model, 0.5), architecture=Net)
    with pytest.raises(ConfigurationError, match="got the class, not a network of it"):
        regrow.load(tmp_path / "a", model=Net)
    with pytest.raises(ConfigurationError, match="must be a network, got str"):
        regrow.load(tmp_path / "a", model="lenet300")
    assert isinstance(regrow.load(tmp_path / "a", allow=PATH), Frozen)
    with pytest.raises(ConfigurationError, match="was not imported"):
        regrow.load(tmp_path / "a", allow=f"{PATH}work")


def test_without_architecture_the_network_must_be_given(tmp_path):
    model = Net()
    regrow.save(tmp_path / "a", model, masks_of(model, 0.5))
    with pytest.raises(StateError, match="does not say which network"):
        regrow.load(tmp_path / "a")


@pytest.mark.parametrize("shape", [[0], "x", [10**9], [1.5], [2] * 9, [6, -1]])
def test_a_strange_input_shape_is_not_used(tmp_path, shape):
    model = Net()
    regrow.save(tmp_path / "a", model, masks_of(model, 0.5), architecture=Net, about={"input_shape": shape})
    assert regrow.load(tmp_path / "a", allow=[PATH])(torch.randn(2, 6)).shape == (2, 2)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    from regrow.training.main import train

    folder = tmp_path_factory.mktemp("run")
    data = write_data(folder / "data.npz")
    assert train(config(data, epochs=2, max_steps=12), folder / "run") == 0
    return SimpleNamespace(folder=folder / "run", data=data)


def accuracy(text):
    return re.search(r"accuracy ([\d.]+%)", text)[1]


def test_export_and_infer_agree_with_evaluate(run, tmp_path, capsys):
    path = tmp_path / "deep" / "a.safetensors"
    assert main(["export", str(run.folder), "--to", str(path)]) == 0
    assert f"{path.stat().st_size:,} bytes" in capsys.readouterr().out
    assert main(["evaluate", str(run.folder)]) == 0
    wanted = accuracy(capsys.readouterr().out)
    for arguments in (["--batch", "1"], ["--batch", "7", "--threads", "1"], ["--data", str(run.data)]):
        assert main(["infer", str(path), *arguments]) == 0
        output = capsys.readouterr().out
        assert accuracy(output) == wanted
        assert "p99" in output


def test_data_of_another_shape_are_refused_in_one_line(run, tmp_path, capsys):
    path = tmp_path / "a.safetensors"
    assert main(["export", str(run.folder), "--to", str(path), "--quiet"]) == 0
    other = tmp_path / "other.npz"
    np.savez(other, x_train=np.zeros((40, 8, 8), dtype=np.uint8), y_train=np.arange(40) % 4)
    capsys.readouterr()
    assert main(["infer", str(path), "--data", str(other), "--split", "train"]) == 2
    assert "takes 1x12x12, other has 1x8x8: name other data" in capsys.readouterr().err


def test_export_says_that_a_run_is_not_finished(run, tmp_path, capsys):
    folder = tmp_path / "copy"
    shutil.copytree(run.folder, folder)
    target = ["--to", str(tmp_path / "a.safetensors"), "--quiet"]
    assert main(["export", str(folder), *target]) == 0
    assert "not finished" not in capsys.readouterr().err
    (folder / "result.json").unlink()
    assert main(["export", str(folder), *target]) == 0
    assert "the run is not finished: this is its newest checkpoint" in capsys.readouterr().err


def test_exported_weights_are_the_runs(run, tmp_path):
    path = tmp_path / "a.safetensors"
    assert main(["export", str(run.folder), "--to", str(path), "--quiet"]) == 0
    network = load_model(run.folder).network
    state = regrow.load(path, dense=True).state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in network.state_dict().items())
    dense = tmp_path / "dense.safetensors"
    assert main(["export", str(run.folder), "--to", str(dense), "--dense", "--quiet"]) == 0
    from safetensors.torch import load_file

    assert all(torch.equal(load_file(dense)[name], tensor) for name, tensor in network.state_dict().items())


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["--to", "a.bin"], "unknown file format '.bin'"),
        (["--to", "a.safetensors", "--values", "float23"], "did you mean 'float32'"),
        (["--to", "a.safetensors", "--sparse-initialisers"], "belong to ONNX"),
    ],
)
def test_export_errors_are_one_line(run, tmp_path, capsys, monkeypatch, arguments, what):
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(run.folder), *arguments]) == 2
    error = capsys.readouterr().err
    assert what in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_infer_errors_are_one_line(run, tmp_path, capsys):
    path = tmp_path / "a.safetensors"
    path.write_bytes(b"nothing")
    assert main(["infer", str(path)]) == 2
    assert "is refused" in capsys.readouterr().err
    model = Net()
    regrow.save(path, model, masks_of(model, 0.5))
    assert main(["infer", str(path)]) == 2
    assert "--data NAME" in capsys.readouterr().err
    assert main(["infer", str(path), "--batch", "0"]) == 2
    assert "--batch must be" in capsys.readouterr().err
    assert main(["infer", str(tmp_path / "none")]) == 2
    regrow.save(path, model, masks_of(model, 0.5), architecture=Net)
    capsys.readouterr()
    assert main(["infer", str(path), "--data", str(run.data)]) == 2
    assert f"on the command line --allow {PATH};" in capsys.readouterr().err
    assert main(["infer", str(run.folder)]) == 2
    assert (
        f"is a folder: write the run's network to a file first, regrow export {run.folder}" in capsys.readouterr().err
    )


def test_weights_outside_the_masks_are_refused(run, tmp_path, capsys):
    import shutil

    from safetensors.torch import load_file, save_file

    folder = tmp_path / "run"
    shutil.copytree(run.folder, folder)
    newest = max((folder / "checkpoints").glob("step-*"))
    tensors = load_file(newest / "tensors.safetensors")
    for tensor in tensors.values():
        if tensor.dim() == 4:
            tensor += 1
    save_file(tensors, newest / "tensors.safetensors")
    manifest = json.loads((newest / "manifest.json").read_text())
    from regrow.files import checksum

    manifest["sha256"]["tensors.safetensors"] = checksum((newest / "tensors.safetensors").read_bytes())
    (newest / "manifest.json").write_text(json.dumps(manifest))
    assert main(["export", str(folder), "--to", str(tmp_path / "a.safetensors")]) == 2
    assert "must be ended first" in capsys.readouterr().err


def test_shipping_page_runs_as_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"np": np}
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(code, "snippet", "exec"), namespace)
    assert (tmp_path / "net.safetensors").is_file()
    assert namespace["answers"].shape == (1, 10)


def test_whoever_loads_a_network_does_not_wait_for_torch_compile():
    """Its import takes longer than all that a first answer needs."""
    code = "import sys, regrow.shipping.loading; print(*({'torch', 'torch._dynamo', 'sympy', 'matplotlib'} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split() == ["torch"]
