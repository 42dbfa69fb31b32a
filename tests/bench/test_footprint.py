"""`regrow bench memory`: counted and measured, side by side."""

import json

import pytest
import torch

from regrow.bench import footprint, masks, memory
from regrow.bench.arms import batch_of, sparse
from regrow.bench.layers import Case, LayerSpec, modules
from regrow.cli.main import main
from regrow.execution import available
from regrow.memory import PARTS
from regrow.models import create

pytestmark = pytest.mark.skipif(not available(), reason="the native kernels are not built here")


def fake(arm):
    """A sparse arm needs half of everything."""
    size = 50 if arm["name"] == "sparse" else 100
    parts = {**dict.fromkeys(PARTS, size), "total": size * len(PARTS), "activations": size}
    return {"peak_mb": float(size), "parts": parts}


def test_rows_have_ratios_to_dense_of_the_same_run(monkeypatch):
    monkeypatch.setattr(footprint, "measured", fake)
    rows = list(footprint.rows([("lenet300", 0.05)], None, 1))
    assert [row["arm"] for row in rows] == ["dense", "masked", "sparse"]
    dense, _, sparse_row = rows
    assert dense["peak_ratio"] == dense["counted_ratio"] == dense["state_ratio"] == 1.0
    assert sparse_row["peak_ratio"] == sparse_row["counted_ratio"] == sparse_row["state_ratio"] == 0.5
    assert dense["counted"] == 100 * len(PARTS) + 100
    assert dense["batch"] == 100


def test_the_command_stores_a_record_per_arm(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(footprint, "measured", fake)
    threads = torch.get_num_threads()
    try:
        assert main(["bench", "memory", "--model", "lenet300", "--json", str(tmp_path / "a.json")]) == 0
    finally:
        torch.set_num_threads(threads)
    stored = json.loads((tmp_path / "a.json").read_text())
    assert [row["arm"] for row in stored["rows"]] == ["dense", "masked", "sparse"]
    assert stored["machine"]["instruction_set"]
    assert "lenet300" in capsys.readouterr().out


def test_an_unknown_storage_is_refused(capsys):
    assert main(["bench", "memory", "--storage", "liquid"]) == 2
    assert "unknown --storage 'liquid'" in capsys.readouterr().err


def test_an_arm_counts_its_parts(capsys):
    threads = torch.get_num_threads()
    arm = {"model": "lenet300", "batch": 4, "density": 0.1, "name": "sparse", "threads": 1, "account": True}
    try:
        memory.main(json.dumps(arm))
    finally:
        torch.set_num_threads(threads)
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    parts = found["parts"]
    assert found["peak_mb"] >= 0
    assert parts["weights"] == parts["optimizer"] == 4 * 266_610
    assert parts["lists"] > 0
    assert parts["predicted"] == []


def test_transformers_have_the_published_densities():
    chosen = masks.spread(create("gpt-10m", seed=0), None)
    attention = [mask for name, mask in chosen.masks.items() if "attention" in name]
    share = sum(int(mask.sum()) for mask in attention) / sum(mask.numel() for mask in attention)
    assert share == pytest.approx(0.3, abs=0.005)
    assert chosen.density == pytest.approx(0.175, abs=0.01)


def test_a_storage_that_the_library_does_not_know_is_refused():
    model = create("lenet300", seed=0)
    with pytest.raises(ValueError, match="storage"):
        sparse(model, *batch_of("lenet300", 2), masks.uniform(model, 0.1).masks, "sparse", storage="liquid")


def test_layers_are_timed_as_modules_in_each_storage():
    case = Case(LayerSpec(12, 8, batch=4), 0.3)
    (name, passes), *more = modules(case, ["dense"]).items()
    assert (name, more) == ("stored dense", [])
    arm = passes()
    assert arm.handle.nonzeros == int(case.mask.sum())
    assert arm.handle.switch.execution == "sparse"
    torch.testing.assert_close(arm.x.grad, case.grad @ case.weight)
    weight = arm.model[0].weight
    torch.testing.assert_close(weight.grad, (case.grad.t() @ case.x) * case.mask)
