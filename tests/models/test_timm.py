import builtins
import json
import warnings

import pytest
import torch

from regrow import models
from regrow.cli.main import main
from regrow.models.cost import cost
from regrow.training.stored import load_model


@pytest.fixture(scope="module")
def timm():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("timm", exc_type=ImportError)


@pytest.mark.usefixtures("timm")
def test_any_timm_model_by_name():
    record = models.info("timm:resnet18")
    assert (record.input_shape, record.num_classes) == ((3, 224, 224), 1000)
    model = models.create("timm:resnet18", num_classes=7, input_shape=(1, 64, 64), seed=0)
    assert model(torch.zeros(2, 1, 64, 64)).shape == (2, 7)
    count = cost(models.create("timm:resnet18"), record.input_shape)
    assert count.params == 11_689_512
    assert count.macs == 1_814_073_344


@pytest.mark.usefixtures("timm")
def test_the_command_trains_a_timm_model(tmp_path, capsys):
    command = ["train", "demo", "--model", "timm:test_resnet", "--batch", "50", "--threads", "1", "--update-every", "1"]
    assert main([*command, "--max-steps", "2", "--out", str(tmp_path / "run")]) == 0
    assert "starting: timm:test_resnet" in capsys.readouterr().out
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (result["steps"], result["updates"]) == (2, 2)
    assert result["nonzeros"] == round(0.05 * result["weights"])
    trained = load_model(tmp_path / "run").network
    assert trained.conv1[0].in_channels == 1, "fitted to the data"
    assert trained.fc.out_features == 10
    assert main([*command, "--max-steps", "3", "--out", str(tmp_path / "run")]) == 0
    assert "resuming at step 2" in capsys.readouterr().out


@pytest.mark.usefixtures("timm")
def test_unknown_timm_model_names_the_nearest():
    with pytest.raises(models.UnknownModelError, match="did you mean 'timm:resnet18'"):
        models.create("timm:resnet1_8")


@pytest.fixture
def _without_timm(monkeypatch):
    real = builtins.__import__

    def without_timm(name, *args, **kwargs):
        if name == "timm":
            raise RuntimeError("operator torchvision::nms does not exist")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_timm)


@pytest.mark.usefixtures("_without_timm")
def test_missing_timm_tells_the_remedy():
    with pytest.raises(ImportError, match=r"pip install 'regrow\[timm\]'"):
        models.create("timm:resnet18")


@pytest.mark.usefixtures("_without_timm")
@pytest.mark.parametrize("command", ["train", "plan"])
def test_missing_timm_is_one_line_of_a_command(command, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([command, "demo", "--model", "timm:resnet18"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "torchvision::nms does not exist): pip install 'regrow[timm]'" in line
