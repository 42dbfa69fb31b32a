"""`regrow bench wide`: a layer too wide to be dense, in small."""

import json

import pytest
import torch

from regrow.bench import wide
from regrow.cli.main import main
from regrow.execution import available

pytestmark = pytest.mark.skipif(not available(), reason="the native kernels are not built here")


def test_bytes_follow_the_density():
    found = wide.measure(inputs=64, outputs=2000, density=0.05, batch=4, repeats=1)
    assert found.dense_state == 2 * 4 * 64 * 2000
    assert found.compact_state == 2 * 4 * round(0.05 * 64 * 2000)
    assert found.state_ratio == pytest.approx(0.05)
    assert found.state_ratio < found.positions_ratio < found.lists_ratio
    assert found.ratio == found.dense_ms / found.compact_ms
    assert "linear 64->2000" in found.line()


def test_both_layers_step():
    x, grad = torch.randn(3, 8), torch.randn(3, 5)
    step = wide._Step(torch.nn.Linear(8, 5, bias=False), x, grad, sparse=False)
    before = step.model[0].weight.detach().clone()
    step()
    torch.testing.assert_close(step.model[0].weight, before - 1e-3 * grad.t() @ x)


def test_the_command_stores_its_record(monkeypatch, tmp_path):
    monkeypatch.setattr(wide, "_LEAST_MEMORY", 0)
    small = wide.measure(inputs=16, outputs=30, density=0.2, batch=2, repeats=1)
    monkeypatch.setattr(wide, "measure", lambda repeats: small)
    threads = torch.get_num_threads()
    try:
        assert main(["bench", "wide", "--repeats", "1", "--json", str(tmp_path / "wide.json")]) == 0
    finally:
        torch.set_num_threads(threads)
    assert json.loads((tmp_path / "wide.json").read_text())["rows"][0]["layer"] == "linear 16->30"


def test_a_small_machine_is_told(monkeypatch, capsys):
    monkeypatch.setattr(wide, "_LEAST_MEMORY", 1e18)
    assert main(["bench", "wide"]) == 2
    assert "bench wide is skipped: it needs 16 GB" in capsys.readouterr().err
