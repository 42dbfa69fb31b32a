"""ONNX and torch.export: the same answers for any batch, in other programs."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from regrow import models, native
from regrow.cli.main import main
from regrow.errors import MissingPackageError, StateError
from regrow.shipping import formats
from regrow.shipping.freeze import freeze
from tests.support.networks_to_ship import difference, masked, masks_of, shaken

pytestmark = pytest.mark.filterwarnings("ignore")
needs_kernels = pytest.mark.skipif(not native.available(), reason="native kernels not built")


def small(name="lenet5", shape=(1, 28, 28), density=0.1):
    model = shaken(models.create(name, seed=0, input_shape=shape))
    masks = masks_of(model, density)
    masked(model, masks)
    return model, freeze(model, masks, torch.zeros(1, *shape))


def onnx_answers(path, x):
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(None, {"input": x.numpy()})[0])


@pytest.mark.parametrize("sparse", [False, True])
def test_onnx_runtime_answers_the_same(tmp_path, sparse):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    model, frozen = small()
    size = formats.write_onnx(tmp_path / "a.onnx", frozen, torch.zeros(1, 1, 28, 28), sparse=sparse)
    assert size == (tmp_path / "a.onnx").stat().st_size
    stored = onnx.load(tmp_path / "a.onnx")
    assert bool(stored.graph.sparse_initializer) == sparse
    for samples in (1, 5):
        x = torch.randn(samples, 1, 28, 28)
        with torch.no_grad():
            assert difference(model(x), onnx_answers(tmp_path / "a.onnx", x)) < 5e-6


def test_openvino_answers_the_same(tmp_path):
    openvino = pytest.importorskip("openvino")
    pytest.importorskip("onnxscript")
    model, frozen = small()
    formats.write_onnx(tmp_path / "a.onnx", frozen, torch.zeros(1, 1, 28, 28))
    # Matrix instructions that a hypervisor announces and traps would end this process.
    compiled = openvino.Core().compile_model(str(tmp_path / "a.onnx"), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    x = torch.randn(3, 1, 28, 28)
    with torch.no_grad():
        assert difference(model(x), torch.from_numpy(np.array(compiled(x.numpy())[0]))) < 1e-4


def test_onnx_has_the_channels_that_are_left(tmp_path):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    model, frozen = small(density=0.02)
    formats.write_onnx(tmp_path / "a.onnx", frozen, torch.zeros(1, 1, 28, 28))
    kept = sum(int(np.prod(t.dims)) for t in onnx.load(tmp_path / "a.onnx").graph.initializer)
    assert kept < 0.3 * sum(p.numel() for p in model.parameters())


FRESH = """
import sys, torch
if sys.argv[2] == "sparse":
    from regrow import load
x = torch.load(sys.argv[1] + "/x.pt")
answers = torch.export.load(sys.argv[1] + "/a.pt2").module()(x)
assert ("regrow" in sys.modules) == (sys.argv[2] == "sparse")
torch.save(answers, sys.argv[1] + "/y.pt")
"""


@needs_kernels
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_exported_program_loads_in_a_fresh_process(tmp_path, kind):
    model, frozen = small()
    formats.write_program(tmp_path / "a.pt2", frozen, torch.zeros(1, 1, 28, 28), dense=kind == "dense")
    x = torch.randn(5, 1, 28, 28)
    torch.save(x, tmp_path / "x.pt")
    subprocess.run([sys.executable, "-W", "ignore", "-c", FRESH, str(tmp_path), kind], check=True, timeout=300)
    with torch.no_grad():
        assert difference(model(x), torch.load(tmp_path / "y.pt")) < 5e-6


@needs_kernels
def test_compiled_network_answers_the_same():
    model, frozen = small("lenet300")
    compiled = torch.compile(frozen, backend="aot_eager")
    with torch.no_grad():
        for samples in (1, 3):
            x = torch.randn(samples, 1, 28, 28)
            assert difference(model(x), compiled(x)) < 5e-6


def test_network_that_was_not_traced_is_refused(tmp_path):
    class Branching(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    frozen = freeze(Branching(), {})
    with pytest.raises(StateError, match="could not be traced"):
        formats.write_program(tmp_path / "a.pt2", frozen, torch.zeros(1, 2))
    assert not list(tmp_path.iterdir())


def test_missing_packages_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'regrow\[onnx\]'"):
        formats._import_onnx()


@needs_kernels
def test_commands_write_them(tmp_path, capsys):
    pytest.importorskip("onnxscript")
    run = tmp_path / "run"
    assert main(["train", "demo", "--out", str(run), "--max-steps", "3", "--threads", "1"]) == 0
    for name, more in (("a.onnx", []), ("b.onnx", ["--sparse-initialisers"]), ("a.pt2", []), ("b.pt2", ["--dense"])):
        assert main(["export", str(run), "--to", str(tmp_path / name), *more]) == 0
        assert f"{name}: {(tmp_path / name).stat().st_size:,} bytes" in capsys.readouterr().out
    assert main(["export", str(run), "--to", str(tmp_path / "c.onnx"), "--values", "float16"]) == 2
    assert "belongs to .safetensors" in capsys.readouterr().err
