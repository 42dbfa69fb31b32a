"""The benchmark weighs steps as it says, and its networks are the published ones."""

import json
import sys
from pathlib import Path

import pytest
from torch import nn

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def overhead(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import overhead

    yield overhead
    for name in ("overhead", "overhead_networks"):
        sys.modules.pop(name, None)


def test_one_interval_is_434_masked_65_window_and_one_update_step(overhead):
    times = {"masked": 1.0, "window": 10.0, "update": 100.0}
    assert overhead.over_interval(times, 66) == pytest.approx((434 * 1 + 65 * 10 + 100) / 500)


@pytest.mark.parametrize(("name", "count"), [("LeNet-5-Caffe", 430_500), ("VGG16-D", 15_239_872), ("ResNet-50", 25_502_912)])  # fmt: skip
def test_networks_have_the_published_number_of_weights(overhead, name, count):
    case = next(case for case in overhead.CASES if case.name == name)
    assert overhead.networks.weights(case.build()) == count


def test_measures_a_small_network_and_writes_json(overhead, monkeypatch, tmp_path, capsys):
    small = overhead.Case(
        "tiny", lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Linear(8, 3)), (5, 4, 4), 3, 2
    )
    monkeypatch.setattr(overhead, "CASES", (small,))
    monkeypatch.setattr(sys, "argv", ["overhead.py", "--rounds", "2", "--json", str(tmp_path / "out.json")])
    overhead.main()
    assert "tiny" in capsys.readouterr().out
    data = json.loads((tmp_path / "out.json").read_text())
    result = data["results"][0]
    assert (result["weights"], result["rounds"], data["interval"]) == (152, 2, 500)
    assert result["ratio_lowest"] <= result["ratio"] <= result["ratio_highest"]
    assert set(result["alone_ms"]) == {"masked", "window", "update", "mean"}
    assert data["machine"]["clock"] == "perf_counter"
