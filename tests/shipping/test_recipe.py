"""The page on fine-tuning and shipping, as printed."""

import re
from pathlib import Path

import pytest
import torch

PAGE = Path(__file__).parents[2] / "docs" / "fine_tune_and_ship.md"


def test_a_network_trained_dense_is_pruned_frozen_and_shipped(tmp_path, monkeypatch):
    pytest.importorskip("timm", exc_type=ImportError)
    monkeypatch.chdir(tmp_path)
    found = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(code, "snippet", "exec"), found)
    assert found["dense"] > 0.8, "else there is nothing to lose"
    assert found["shipped"] > found["dense"] - 0.05
    assert found["sparse"].density == pytest.approx(0.1, abs=0.002)
    x = torch.randn(3, 1, 28, 28)
    with torch.no_grad():
        assert torch.allclose(found["network"](x), found["model"].eval()(x), atol=1e-4)
        assert torch.allclose(found["network"](x), found["frozen"](x), atol=1e-4)
    whole = sum(t.numel() * t.element_size() for t in found["model"].state_dict().values())
    assert (tmp_path / "small.safetensors").stat().st_size < 0.35 * whole
