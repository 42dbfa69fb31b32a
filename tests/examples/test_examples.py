"""The examples run as printed in the README, and do what they say."""

import re
import runpy
from pathlib import Path

import pytest

from regrow.methods import METHODS

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def run(capsys, monkeypatch):
    """Run an example in this process; methods it registers are forgotten afterwards."""
    before = dict(METHODS)

    def run(name):
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    yield run
    METHODS.clear()
    METHODS.update(before)


def test_every_example_is_tested():
    assert {p.name for p in EXAMPLES.glob("*.py")} == {
        "quickstart.py",
        "own_method.py",
        "finetune.py",
        "too_large_for_dense.py",
    }


def test_quickstart_prints_the_table_and_learns(run):
    out = run("quickstart.py")
    assert out.count("sparse-momentum: 10.00% of 71,568 weights") == 2
    assert "7,157 of 71,568 weights, 5 topology updates" in out
    dense, sparse = (float(x) for x in re.findall(r"(?:dense|sparse) ([\d.]+)%", out)[-2:])
    assert dense > 80
    assert sparse > 60  # ten classes: chance is 10%


def test_quickstart_stays_short():
    assert len((EXAMPLES / "quickstart.py").read_text().splitlines()) < 100


def test_own_method_fits_the_teacher(run):
    out = run("own_method.py")
    rows = re.findall(r"own (criteria|method): loss ([\d.]+), (\d+) weights, (\d+) topology updates", out)
    assert [row[0] for row in rows] == ["criteria", "method"]
    assert all(float(loss) < 0.02 for _, loss, _, _ in rows)
    assert {(weights, updates) for _, _, weights, updates in rows} == {("403", "5")}


@pytest.mark.filterwarnings("ignore")
def test_fine_tuning_keeps_what_was_learnt_in_the_loop_and_in_the_trainer(run):
    pytest.importorskip("transformers", exc_type=ImportError)
    pytest.importorskip("accelerate", exc_type=ImportError)
    out = run("finetune.py")
    found = re.findall(r"^(movement|str), (loop|Trainer): ([\d.]+)% with 30.0% of 20,480 weights$", out, re.MULTILINE)
    assert [row[:2] for row in found] == [(m, w) for m in ("movement", "str") for w in ("loop", "Trainer")]
    assert all(float(accuracy) > 90 for *_, accuracy in found)  # two classes, the larger with about 60%


def test_layers_too_large_in_small(run, monkeypatch):
    argv = ["too_large_for_dense.py", "--units", "300", "--steps", "6", "--batch", "32", "--data", "mnist-sample"]
    monkeypatch.setattr("sys.argv", argv)
    out = run("too_large_for_dense.py")
    assert "5 topology updates" in out or "6 topology updates" in out
    assert "min per epoch" in out
