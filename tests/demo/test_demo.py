"""The demo trains both arms of both networks, compares what was measured, and names what to type next."""

import json
import re
from dataclasses import replace

import pytest
import torch

from regrow import native
from regrow.cli.main import main
from regrow.data import FetchError
from regrow.demo import main as demo
from regrow.demo import measure, show
from regrow.demo.measure import Row
from regrow.demo.pairs import DENSITY, pairs
from regrow.shipping import file as shipped

ROWS = [
    Row("LeNet", "dense", 1.5, 266_200, 1.2, 3_000_000, 1_066_400),
    Row("LeNet", "sparse", 2.0, 13_310, 0.4, 4_000_000, 80_000, 1_100_000),
]


@pytest.mark.parametrize(("data", "images"), [("mnist", 55_000), ("mnist-sample", 4_000)])
def test_arms_differ_in_their_sparse_part_alone(data, images):
    for pair in pairs(data, images):
        assert pair.dense.data.name == data
        assert pair.dense.sparse.method == "dense"
        assert (pair.sparse.sparse.density, pair.sparse.sparse.execution) == (DENSITY, "sparse")
        steps = pair.sparse.epochs * images // pair.sparse.data.batch
        assert steps // pair.sparse.sparse.update_every in (4, 10), "updates in the run"
        assert pair.dense.optimizer == pair.sparse.optimizer
        assert (pair.dense.schedule, pair.dense.epochs) == (pair.sparse.schedule, pair.sparse.epochs)


def test_sentences_compare_the_rows():
    first, *_, last = show.sentences(ROWS, "digits", "a processor")
    assert (
        first
        == "LeNet: 20x fewer weights, 3.0x the speed, a file 13.3x smaller, 1.33x the memory in training, error +0.50 points."
    )
    assert "with --storage compact the sparse networks take 1.1 MB" in last
    *_, last = show.sentences([ROWS[0], replace(ROWS[1], compact_bytes=None)], "digits", "a processor")
    assert last.endswith("Weights keep their dense shape.")


def test_without_mnist_the_sample_is_taken_and_said(monkeypatch):
    def fails(name):
        raise FetchError("no network")

    monkeypatch.setattr(demo, "get", fails)
    data, note = demo._data()
    assert data == "mnist-sample"
    assert "cannot be fetched now" in note
    monkeypatch.setattr(demo, "get", lambda name: None)
    assert demo._data()[0] == "mnist"


@pytest.mark.skipif(not native.available(), reason="native kernels not built")
def test_the_demo_as_a_whole(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(measure, "_ROUNDS", 1)
    assert main(["demo", "--sample", "--max-steps", "8", "--out", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    for model in ("lenet300", "lenet5"):
        sizes = {}
        for arm in ("dense", "sparse"):
            folder = tmp_path / f"{model}-{arm}"
            result = json.loads((folder / "result.json").read_text())
            assert f"{result['test_error']:.2f}%" in output
            assert f"{result['nonzeros']:,}" in output
            assert (folder / "report.html").is_file()
            sizes[arm] = (folder / "model.safetensors").stat().st_size
            assert f"{sizes[arm] / 1000:,.0f} kB" in output
            state, masks = shipped.read(folder / "model.safetensors").state_dict()
            matrices = {
                name: masks.get(name, torch.ones_like(weight)) for name, weight in state.items() if weight.dim() > 1
            }
            assert sum(int(mask.sum()) for mask in matrices.values()) == result["nonzeros"]
        assert result["execution"] == "sparse", "on the kernels"
        assert sizes["sparse"] < sizes["dense"] / 5
    memory = [float(size) for size in re.findall(r"([\d.]+) MB │", output)]
    assert len(memory) == 4
    found = re.search(r"compact the sparse networks take ([\d.]+) (kB|MB) and ([\d.]+) (kB|MB),", output)
    assert found, output
    scale = {"kB": 1e-3, "MB": 1.0}
    compact = [float(found[1]) * scale[found[2]], float(found[3]) * scale[found[4]]]
    assert all(small < dense / 2 for small, dense in zip(compact, memory[::2], strict=True))
    page = (tmp_path / "index.html").read_text()
    for link in re.findall(r'href="(\w[^":]*)"', page):
        assert (tmp_path / link).is_file()
    for command in re.findall(r"^  (regrow [a-z]+)", output, re.MULTILINE):
        assert command in page
    assert str(tmp_path / "index.html") in output
