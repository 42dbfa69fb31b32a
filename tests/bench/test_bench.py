"""Benchmarks run and report what they say; no timing is asserted."""

import contextlib
import json

import pytest
import torch
from torch import nn

from regrow import models, native
from regrow.bench import arms, compiled, layers, machine, masks, memory, train
from regrow.bench.timing import medians
from regrow.cli.main import main
from regrow.execution import SparsePattern
from regrow.execution.choosing import measure
from regrow.execution.kernels import passes
from regrow.execution.modules.geometry import geometry_of
from regrow.models.cost import cost
from tests.execution.automatic import DENSE_WINS, SPARSE_WINS, Stopwatch

pytestmark = pytest.mark.skipif(not native.available(), reason="native kernels not built")
QUICK = ["--repeats", "1", "--threads", "1", "--no-compile", "--no-memory"]


def tiny():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(32, 5)
    )


def batch():
    return torch.randn(9, 3, 6, 6), torch.randint(5, (9,))


@pytest.mark.parametrize("spec", [layers.LayerSpec(8, 8, 6, batch=9), layers.LayerSpec(16, 8, batch=9)])
def test_layer_rows(spec):
    row = layers.measure(spec, 0.5, 1, compile=False)
    assert row.dense_ms == min(row.dense_settings_ms.values())
    assert len(row.dense_settings_ms) == 2
    assert row.compile_skipped == "not asked for"
    assert row.ratio == pytest.approx(row.dense_ms / row.sparse_ms)
    assert row.sparse_ms == pytest.approx(row.forward_ms + row.backward_ms)
    assert row.compact_ratio == pytest.approx(row.dense_ms / row.compact_ms)
    assert row.useful_gflops > 0
    assert all(low <= high for low, high in row.spread.values())


def test_compact_passes_compute_the_same():
    case = layers.Case(layers.LayerSpec(7, 5, batch=3), 0.5)
    pattern = SparsePattern(case.mask, geometry_of(case.module))
    present = case.weight[case.mask]
    dense, few = torch.zeros_like(case.weight), torch.zeros_like(present)
    torch.testing.assert_close(passes.forward(case.x, present, None, pattern)[0], case.x @ case.weight.t())
    for out in (dense, few):
        passes.weight_gradient(out, case.x, case.grad, pattern)
    assert torch.equal(dense[case.mask], few)
    with pytest.raises(ValueError, match="out has shape"):
        passes.weight_gradient(few[:-1], case.x, case.grad, pattern)


@pytest.mark.parametrize("spec", [layers.LayerSpec(4, 6, 5, batch=3), layers.LayerSpec(7, 5, batch=3)])
def test_dense_settings_compute_the_same(spec):
    case = layers.Case(spec, 0.5)
    function = case.dense_function()
    first, *others = (function(*tensors) for tensors in case.settings().values())
    x, weight = case.x.clone().requires_grad_(), case.module.weight
    case.module(x).backward(case.grad)
    for result in (first, *others):
        for found, wanted in zip(result, (case.module(x), x.grad, weight.grad), strict=True):
            torch.testing.assert_close(found, wanted)
    if not spec.size:
        for found, wanted in zip(case.transposed()(), (first[0].t(), first[1].t(), first[2]), strict=True):
            torch.testing.assert_close(found, wanted)


def test_train_row():
    row = train.measure(
        "tiny", tiny(), batch(), masks.uniform(tiny(), 0.3), 1, window=train.WindowSteps(1, 4), compile=False
    )
    assert row.dense_ms == min(row.dense_settings_ms.values())
    assert row.ratio == pytest.approx(row.dense_ms / row.sparse_ms)
    assert row.bound_share == pytest.approx(row.ratio / row.bound)
    closed = min(row.sparse_step_ms, row.native_step_ms)
    assert row.epoch_ms == pytest.approx((row.window_ms + 3 * closed) / 4)
    assert row.epoch_ratio == pytest.approx(row.dense_step_ms / row.epoch_ms)
    assert row.auto_ms is row.auto_ratio is None


def test_compact_storage_is_timed_beside_dense_storage():
    row = train.measure("tiny", tiny(), batch(), masks.uniform(tiny(), 0.5), 1, compile=False, storage="compact")
    assert row.storage_ratio == row.native_step_ms / row.other_storage_step_ms
    plain = train.measure("tiny", tiny(), batch(), masks.uniform(tiny(), 0.5), 1, compile=False)
    assert plain.storage_ratio is None


def test_masked_and_sparse_arms_train_alike_with_and_without_native_steps():
    chosen = masks.uniform(tiny(), 0.4)
    x, y = batch()
    made = {execution: arms.sparse(tiny(), x, y, chosen.masks, execution) for execution in ("masked", "sparse")}
    made["dense step"] = arms.sparse(tiny(), x, y, chosen.masks, "sparse", native_step=False)
    for arm in made.values():
        for _ in range(3):
            arm.step()
        for name, mask in chosen.masks.items():
            assert torch.equal(arm.handle.masks[name], mask)
    reference = dict(made["masked"].model.named_parameters())
    for name in ("sparse", "dense step"):
        for key, parameter in made[name].model.named_parameters():
            torch.testing.assert_close(parameter, reference[key], rtol=1e-4, atol=1e-6)


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REGROW_CACHE", str(tmp_path / "cache"))


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize(
    ("figures", "density", "layers"), [(SPARSE_WINS, 0.3, 2), (DENSE_WINS, 0.3, 0), (DENSE_WINS, 1.0, 0)]
)
def test_auto_is_measured_as_it_decided(figures, density, layers, monkeypatch):
    monkeypatch.setattr(measure, "milliseconds", Stopwatch(*figures))
    row = train.measure("tiny", tiny(), batch(), masks.uniform(tiny(), density), 1, compile=False, auto=True)
    assert row.auto_sparse == layers
    assert row.auto_ratio == pytest.approx(row.dense_ms / row.auto_ms)
    assert row.auto_step_ratio == pytest.approx(row.dense_step_ms / row.auto_step_ms)


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("channels_last", [True, False])
def test_the_auto_arm_has_decided_and_keeps_its_masks_and_format(channels_last, monkeypatch):
    monkeypatch.setattr(measure, "milliseconds", Stopwatch(*DENSE_WINS))
    chosen = masks.uniform(tiny(), 0.4)
    arm = arms.auto(tiny(), *batch(), chosen.masks, channels_last)
    assert arm.handle.switch.verdicts == 1
    assert not arm.handle.switch.auto.pending
    assert arm.x.is_contiguous(memory_format=torch.channels_last) == channels_last
    assert all(torch.equal(arm.handle.masks[name], mask) for name, mask in chosen.masks.items())


@pytest.mark.usefixtures("own_cache")
def test_train_command_with_auto_at_full_density(tmp_path, capsys):
    file = tmp_path / "rows.json"
    arguments = ["bench", "train", "--model", "lenet300", "--batch", "4", "--density", "1.0", "--auto"]
    assert main([*arguments, "--json", str(file), *QUICK]) == 0
    (row,) = json.loads(file.read_text())["rows"]
    assert row["density"] == row["bound"] == 1.0
    assert row["auto_ratio"] == pytest.approx(row["dense_ms"] / row["auto_ms"])
    assert f"auto {row['auto_ms']:.1f} ms  {row['auto_ratio']:.2f}x" in capsys.readouterr().out


def test_an_open_window_has_dense_gradients():
    chosen = masks.uniform(tiny(), 0.4)
    arm = arms.sparse(tiny(), *batch(), chosen.masks, "sparse")
    seen = []
    arm.in_window(lambda: seen.append(arm.handle.window.is_open))()
    assert seen == [True]
    assert not arm.handle.window.is_open
    arm.in_window(arm.step)()


def test_bound_and_work_by_hand():
    model = tiny()
    table = cost(model, (3, 6, 6))
    half = {"3": torch.zeros(8, 8, 3, 3, dtype=torch.bool)}
    half["3"][:4] = True
    first, second, last = 8 * 27 * 16, 8 * 72 * 4, 32 * 5
    assert masks.bound(table, half) == pytest.approx((first + second + last) / (first + second / 2 + last))
    assert masks.useful_flops(table, half) == 2 * (3 * (first + second // 2 + last) - first)


def test_masks_of_a_run(tmp_path, capsys):
    run = tmp_path / "run"
    common = ["--max-steps", "2", "--threads", "1", "--out", str(run)]
    assert main(["train", "demo", "--density", "0.1", *common]) == 0
    model = models.create("lenet300", seed=0)
    chosen = masks.of_run(run, model)
    assert chosen.source == "run at step 2"
    assert chosen.density == pytest.approx(0.1, abs=1e-4)
    assert set(chosen.masks) == {"fc1", "fc2", "fc3"}
    again = masks.of_run(run / "checkpoints" / "step-00000002", model)
    assert all(torch.equal(again.masks[name], mask) for name, mask in chosen.masks.items())
    assert main(["bench", "train", "--model", "lenet300", "--batch", "8", "--masks", str(run), *QUICK]) == 0
    assert "lenet300 (run at step 2)" in capsys.readouterr().out
    assert main(["bench", "train", "--model", "lenet5", "--batch", "8", "--masks", str(run), *QUICK]) == 2
    assert "choose its --model" in capsys.readouterr().err


def test_layers_of_another_batch_are_measured_once(tmp_path, monkeypatch):
    monkeypatch.setattr(layers, "LAYERS", (layers.LayerSpec(16, 8, batch=9), layers.LayerSpec(16, 8, batch=20)))
    file = tmp_path / "rows.json"
    assert main(["bench", "layers", "--density", "0.5", "--batch", "2", "--json", str(file), *QUICK]) == 0
    assert [row["layer"] for row in json.loads(file.read_text())["rows"]] == ["linear 16->8 batch 2"]


def test_layers_command_writes_records_that_can_be_drawn(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(layers, "LAYERS", (layers.LayerSpec(16, 8, batch=9),))
    file, picture = tmp_path / "rows.json", tmp_path / "docs" / "speed.png"
    assert main(["bench", "layers", "--density", "0.5,1.0", "--json", str(file), *QUICK]) == 0
    content = json.loads(file.read_text())
    assert [row["density"] for row in content["rows"]] == [0.5, 1.0]
    for key in ("layer", "density", "dense_ms", "masked_ms", "sparse_ms", "ratio", "useful_gflops", "peak_share"):
        assert all(key in row for row in content["rows"])
    assert content["fma_peak_gflops"] > 0
    output = capsys.readouterr().out
    assert "linear 16->8" in output
    assert "dense compiled is missing: not asked for" in output
    assert main(["bench", "plot", str(file), "--out", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_train_command_with_windows(tmp_path, capsys):
    file = tmp_path / "rows.json"
    arguments = ["bench", "train", "--model", "lenet5", "--batch", "4", "--density", "0.2", "--windows", "3/10"]
    assert main([*arguments, "--json", str(file), *QUICK]) == 0
    (row,) = json.loads(file.read_text())["rows"]
    assert (row["model"], row["density"], row["masks"], row["epoch_steps"]) == ("lenet5", 0.2, "uniform", "3/10")
    assert "epoch" in capsys.readouterr().out


def test_memory_of_an_arm_is_its_own_process():
    spec = {"inputs": 256, "outputs": 256, "batch": 2048}
    found = memory.peak_mb({"layer": spec, "density": 0.1, "name": "sparse", "threads": 1})
    assert found is None or found > 2 * 4 * 256 * 2048 / 2**20, "input and output at least"
    with pytest.raises(RuntimeError, match="measuring the memory"):
        memory.peak_mb({"layer": spec, "density": 0.1, "name": "nothing", "threads": 1})


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_cannot_compile_gives_its_reason():
    def broken(x):
        return x

    def run(candidate):
        raise OSError("no compiler")

    assert compiled.compiled(broken, run) == (None, "torch.compile failed: OSError: no compiler")


def test_peak_is_a_rate_of_work():
    assert machine.fma_peak(tries=2, rounds=1000) > 0
    assert machine.fma_peak(tries=2, rounds=1000, size=64 << 10) > 0
    assert machine.fma_peak(tries=1, rounds=1000, size=1) == 0  # less than a round of vectors


def test_machine_command_writes_a_rate_per_place(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(machine, "PLACES", {"registers": 0, "16 KB": 16 << 10})
    assert main(["bench", "machine", "--json", str(tmp_path / "machine.json")]) == 0
    content = json.loads((tmp_path / "machine.json").read_text())
    assert content["machine"]["instruction_set"] == native.instruction_set()
    assert set(content["gflops"]) == {"registers", "16 KB"}
    assert min(content["gflops"].values()) > 0
    assert "16 KB" in capsys.readouterr().out


def test_medians_interleave():
    order = []
    medians({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, rounds=2)
    assert order == ["a", "b"] * 3
    with pytest.raises(ValueError, match="rounds"):
        medians({}, 0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["layers", "--density", "0"], "densities lie in"),
        (["layers", "--density", "0.1,2"], "densities lie in"),
        (["layers", "--density", "few"], "--density takes numbers"),
        (["layers", "--repeats", "0"], "--repeats must be at least 1"),
        (["layers", "--only", "nothing"], "no layer's name contains 'nothing'"),
        (["train", "--model", "lenet5", "--windows", "7"], "--windows takes steps"),
        (["train", "--model", "lenet5", "--windows", "7/3"], "--windows takes steps"),
        (["train", "--model", "vgg17"], "unknown model 'vgg17'"),
        (["train", "--model", "mlp"], "unknown model 'mlp'"),
        (["auto", "--model", "lenet5,vgg17"], "unknown model 'vgg17'"),
        (["auto", "--model", "vgg16-d", "--batch", "1"], "vgg16-d cannot train on a batch of 1"),
        (["infer", "--model", "vgg17"], "unknown model 'vgg17'"),
        (["plot"], "nothing to draw"),
        (["plot", "missing.json"], "missing.json is not a result of"),
    ],
)
def test_bad_arguments_are_refused(arguments, words, capsys):
    assert main(["bench", *arguments]) == 2
    shown = capsys.readouterr()
    assert words in shown.err
    if words.startswith("unknown model"):
        assert not shown.out, "refused before the machine is measured"


def test_rows_are_kept_as_they_come(tmp_path, monkeypatch):
    file = tmp_path / "rows.json"
    original, calls = layers.measure, []

    def measure_once(*arguments, **options):
        if calls:
            raise KeyboardInterrupt
        calls.append(1)
        return original(*arguments, **options)

    monkeypatch.setattr(layers, "measure", measure_once)
    monkeypatch.setattr(layers, "LAYERS", (layers.LayerSpec(8, 8, 6, batch=9),))
    with contextlib.suppress(KeyboardInterrupt):
        main(["bench", "layers", "--density", "0.5,1.0", "--json", str(file), *QUICK])
    assert len(json.loads(file.read_text())["rows"]) == 1


def test_a_file_that_cannot_be_is_refused_before_measuring(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(layers, "measure", lambda *_, **__: pytest.fail("measured"))
    (tmp_path / "file").write_text("")
    assert main(["bench", "layers", "--density", "0.5", "--json", str(tmp_path / "file" / "rows.json"), *QUICK]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_inference_rows(tmp_path, capsys):
    path = tmp_path / "rows.json"
    arguments = ["--model", "lenet300", "--density", "0.05,0.5", "--batch", "1,9", "--json", str(path)]
    assert main(["bench", "infer", *arguments, *QUICK]) == 0
    rows = json.loads(path.read_text())["rows"]
    assert [(row["density"], row["batch"]) for row in rows] == [(0.05, 1), (0.05, 9), (0.5, 1), (0.5, 9)]
    for row in rows:
        others = {arm: ms for arm, ms in row["p50_ms"].items() if arm != "regrow"}
        assert set(others) == {"torch", "torch channels_last", "torch compact"}
        assert row["ratio"] == pytest.approx(min(others.values()) / row["p50_ms"]["regrow"])
    assert "lenet300  5%  batch 1:  regrow" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments", [["infer", "--batch", "1,x"], ["infer", "--batch", "0"], ["train", "--batch", "1,2"]]
)
def test_batches_that_are_no_numbers(arguments, capsys):
    assert main(["bench", *arguments, *QUICK]) == 2
    assert "--batch takes" in capsys.readouterr().err
