"""Benchmarks run and report what they say; no timing is asserted."""

import json

import pytest
import torch
from torch import nn

from regrow.bench import layers, train
from regrow.bench.timing import medians
from regrow.cli.main import main
from regrow.execution import native

pytestmark = pytest.mark.skipif(not native.available(), reason="native kernels not built")


@pytest.mark.parametrize("spec", [layers.LayerSpec(8, 8, 6, batch=9), layers.LayerSpec(16, 8, batch=9)])
def test_layer_rows(spec):
    (row,) = layers.measure_all([0.5], [spec], rounds=1)
    assert row.ratio == pytest.approx(row.dense_ms / row.sparse_ms)
    assert row.sparse_ms == pytest.approx(row.forward_ms + row.input_gradient_ms + row.weight_gradient_ms)
    assert row.useful_gflops > 0


def test_train_row():
    def factory():
        return nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(32, 5)
        )

    row = train.measure("tiny", factory, torch.randn(9, 3, 6, 6), classes=5, density=0.3, rounds=1)
    assert row.ratio == pytest.approx(row.dense_ms / row.sparse_ms)


def test_command_writes_records(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(layers, "LAYERS", (layers.LayerSpec(16, 8, batch=9),))
    file = tmp_path / "rows.json"
    assert main(["bench", "layers", "--density", "0.5,1.0", "--rounds", "1", "--json", str(file)]) == 0
    rows = json.loads(file.read_text())["rows"]
    assert [row["density"] for row in rows] == [0.5, 1.0]
    assert "linear 16->8" in capsys.readouterr().out


def test_medians_interleave():
    order = []
    medians({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, rounds=2)
    assert order == ["a", "b"] * 3
    with pytest.raises(ValueError, match="rounds"):
        medians({}, 0)


@pytest.mark.parametrize("text", ["0", "1.5", "0.1,2"])
def test_bad_density_is_refused(text, capsys):
    assert main(["bench", "layers", "--density", text]) == 2
    assert "densities lie in" in capsys.readouterr().err
