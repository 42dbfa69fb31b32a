"""The comparison with other runtimes runs and says what is missing."""

import json
import sys
from pathlib import Path

import pytest

from regrow import native

pytestmark = [
    pytest.mark.skipif(not native.available(), reason="native kernels not built"),
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture
def inference_peers(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import inference_peers

    return inference_peers


def test_measures_what_is_installed(inference_peers, tmp_path, monkeypatch, capsys):
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    monkeypatch.setitem(sys.modules, "openvino", None)
    path = tmp_path / "rows.json"
    arguments = [
        "--model",
        "lenet300",
        "--density",
        "0.1",
        "--batch",
        "1",
        "--repeats",
        "1",
        "--threads",
        "1",
        "--json",
        str(path),
    ]
    monkeypatch.setattr(sys, "argv", ["inference_peers.py", *arguments])
    inference_peers.main()
    (row,) = json.loads(path.read_text())["rows"]
    assert "ONNX Runtime" in row["p50_ms"]
    assert "OpenVINO is left out" in capsys.readouterr().out
