"""Several processes: the same masks, exact resumption, and gradients exchanged at present weights only."""

import json
import os
import subprocess
import sys

import pytest

from regrow import native
from regrow.config import Config, Data
from regrow.errors import ConfigurationError
from regrow.training.processes import Processes
from regrow.training.run import Run
from tests.training import tiny
from tests.training.test_resume import ROOT, environment

needs_kernels = pytest.mark.skipif(not native.available(), reason="native kernels not built")


def run_ranks(work, world, task):
    command = [sys.executable, "-m", "tests.training.ranks", str(work), str(world), task]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), cwd=ROOT, timeout=600)
    logs = "".join(path.read_text()[-2000:] for path in work.glob("*.log"))
    assert done.returncode == 0, done.stderr + logs
    return json.loads(done.stdout)


def check_resumed(report):
    assert 5 < max(report["resumed"]) <= 27
    assert report["killed"] == report["whole"]
    assert not report["leftovers"]


def check_traffic(rows, weights):
    """Bytes of one step, neither summed up over rows nor forgotten where a run resumed."""
    (dense,) = {row["bytes_per_step_dense"] for row in rows}
    assert dense == 4 * weights["all"]
    least = 4 * (weights["all"] - weights["sparse"] + weights["nonzeros"])
    assert all(least <= row["bytes_per_step"] <= least + 4 * weights["sparse"] for row in rows)
    assert any(row["bytes_per_step"] > least for row in rows), "growth windows"


@pytest.mark.parametrize("task", ["resume", pytest.param("resume_sparse", marks=needs_kernels)])
def test_two_ranks_resume_bit_for_bit_and_come_close_to_one(tmp_path, task):
    report = run_ranks(tmp_path, 2, task)
    check_resumed(report)
    assert report["loss"] == pytest.approx(report["single"], rel=0.2)
    for rows in report["speed"].values():
        check_traffic(rows, report["weights"])


@pytest.mark.deep
def test_three_ranks_resume_bit_for_bit(tmp_path):
    check_resumed(run_ranks(tmp_path, 3, "resume"))


def test_gradients_travel_sparse_and_arrive_as_with_plain_data_parallelism(tmp_path):
    for found in (found for rank in run_ranks(tmp_path, 2, "traffic")["ranks"] for found in rank.values()):
        assert found["nonzero"]
        assert found["worst"] == 0.0
        for sent, expected in found["sent"]:
            assert sent == expected
        # RigL looks at missing weights in one step of three: steps 0 and 3.
        first, second, third, fourth, *_ = [sent for sent, _ in found["sent"]]
        assert first == fourth > second == third
        assert second < 0.25 * found["dense"] / len(found["sent"])


def test_torchrun(tmp_path):
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "regrow"]
    command += ["train", "demo", "--out", str(folder), "--max-steps", "4", "--threads", "1", "--update-every", "2"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("starting:") == 1
    assert json.loads((folder / "result.json").read_text())["updates"] == 2
    speed = json.loads((folder / "speed.jsonl").read_text().splitlines()[-1])
    assert speed["bytes_per_step_dense"] == 4 * 266_610
    assert speed["steps"] == 4
    assert not [name for name in os.listdir(folder) if name.startswith(".")]


def test_alone():
    alone = Processes()
    assert alone.leads
    assert alone.sum([1.5, 2.0]) == [1.5, 2.0]
    assert alone.gather([1.0]) == [[1.0]]
    assert alone.any(True)
    assert not alone.any(False)


def test_a_batch_too_small_for_the_ranks_is_the_users_error(tmp_path):
    data = tiny.write_data(tmp_path / "data.npz")
    config = Config(model="lenet300", data=Data(str(data), batch=3), threads=1)
    processes = type("Four", (Processes,), {"wait": lambda self: None})(0, 4)
    with pytest.raises(ConfigurationError, match="cannot be shared by 4 ranks: change batch_size"):
        Run(config, tmp_path / "run", processes)
