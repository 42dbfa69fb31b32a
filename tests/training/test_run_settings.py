"""What settings do to the steps of a run, and losses that are not finite."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

from regrow.config import Data, Optimizer, Schedule
from regrow.errors import NonFiniteError
from regrow.training.ledger import read_rows
from regrow.training.run import Run
from tests.training import tiny
from tests.training.test_run import StopAt


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tiny.write_data(tmp_path_factory.mktemp("data") / "data.npz")


def poison(run, step):
    """Let the images of one step be infinite."""
    original = run._train_step

    def poisoned(images, labels):
        original(images * float("inf") if run.step == step else images, labels)

    run._train_step = poisoned


def snapshot(run):
    handle = run.parts.handle
    return [t.clone() for t in (*run.parts.network.parameters(), *handle.masks.values())]


def test_a_loss_that_is_not_finite_stops_before_anything_changes(data, tmp_path):
    run = Run(tiny.config(data, model="lenet300"), tmp_path)
    poison(run, 7)
    after = {}
    run.view = type("Spy", (StopAt,), {"stepped": lambda self, run: after.update({run.step: snapshot(run)})})()
    with pytest.raises(NonFiniteError, match=r"loss is nan at step 7; the batch itself is not finite"):
        run.train()
    assert all(torch.equal(a, b) for a, b in zip(after[7], snapshot(run), strict=True))
    assert run.step == 7


def test_the_first_bad_layer_is_named(data, tmp_path):
    run = Run(tiny.config(data, model="lenet300"), tmp_path)
    with torch.no_grad():
        run.parts.network.get_parameter("fc2.bias")[0] = float("inf")
    before = snapshot(run)
    with pytest.raises(NonFiniteError, match=r"step 0; the first layer with a non-finite output is fc2"):
        run.train()
    assert all(torch.equal(a, b) for a, b in zip(before, snapshot(run), strict=True))


def one_step(data, folder, **changes):
    """A run after one step, and the same step by hand."""
    config = tiny.config(data, model="lenet300", max_steps=1, **changes)
    run = Run(config, folder)
    images, labels = next(run.parts.train.batches(0, config.data.batch, config.seed))
    return run, images, labels


def test_label_smoothing_is_in_the_loss(data, tmp_path):
    run, images, labels = one_step(data, tmp_path, label_smoothing=0.1)
    logits = run.parts.network(images).detach()
    right = logits.log_softmax(1)[range(20), labels].mean()
    expected = -(0.9 * right + 0.1 * logits.log_softmax(1).mean())
    run.train()
    assert read_rows(tmp_path / "metrics.jsonl")[0]["loss"] == pytest.approx(float(expected), rel=1e-5)


def test_clip_norm_limits_the_gradient(data, tmp_path):
    run, *_ = one_step(data, tmp_path, optimizer=Optimizer(clip_norm=1e-3))
    norms = []
    run.parts.optimizer.register_step_pre_hook(
        lambda *_: norms.append(float(nn.utils.get_total_norm([p.grad for p in run.parts.network.parameters()])))
    )
    run.train()
    assert norms == [pytest.approx(1e-3, rel=1e-3)]


def test_the_learning_rate_reaches_the_optimizer(data, tmp_path):
    config = tiny.config(data, optimizer=Optimizer(lr=0.4), schedule=Schedule("step", 0.5, epochs=(1.0,)), epochs=2)
    Run(config, tmp_path).train()
    rows = read_rows(tmp_path / "metrics.jsonl")
    assert {r["step"]: r["lr"] for r in rows if r["kind"] == "train"} == {
        4: 0.4, 8: 0.4, 10: 0.4, 12: 0.2, 16: 0.2, 20: 0.2,
    }  # fmt: skip


def test_bf16_runs_in_bf16_and_keeps_weights_in_fp32(data, tmp_path):
    run, *_ = one_step(data, tmp_path, precision="bf16")
    seen = []
    run.parts.network.get_submodule("fc1").register_forward_hook(lambda m, i, o: seen.append(o.dtype))
    run.train()
    assert seen[0] == torch.bfloat16
    assert {p.dtype for p in run.parts.network.parameters()} == {torch.float32}


def test_dropout_depends_on_seed_and_step_alone(data, tmp_path):
    config = tiny.config(data, epochs=1)
    torch.manual_seed(1)
    Run(config, tmp_path / "a").train()
    torch.manual_seed(2)
    Run(config, tmp_path / "b").train()
    assert tiny.digests(tmp_path / "a") == tiny.digests(tmp_path / "b")


def test_every_epoch_unless_told_otherwise(data, tmp_path):
    Run(tiny.config(data, epochs=3, evaluate_every=2), tmp_path).train()
    rows = read_rows(tmp_path / "metrics.jsonl")
    assert [r["step"] for r in rows if r["kind"] == "validation"] == [20, 30]


def test_training_on_everything_has_no_validation(data, tmp_path):
    config = replace(tiny.config(data, epochs=1), data=Data(str(data), batch=20, train_split="train+val"))
    Run(config, tmp_path).train()
    assert "validation" not in {r["kind"] for r in read_rows(tmp_path / "metrics.jsonl")}


def check_compiled(data, folder):
    plain = Run(tiny.config(data, model="lenet300", max_steps=3), folder / "plain").train()
    run = Run(tiny.config(data, model="lenet300", max_steps=3, compile=True), folder / "compiled")
    compiled = run.train()
    assert run.parts.forward is not run.parts.network
    assert compiled["test_loss"] == pytest.approx(plain["test_loss"], rel=1e-3)
    assert compiled["nonzeros"] == plain["nonzeros"]


def test_compile_trains_the_same_network(data, tmp_path, monkeypatch):
    # Capturing the graph is what could go wrong here; generating code for it takes a minute.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    check_compiled(data, tmp_path)


@pytest.mark.deep
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_compile_with_generated_code(data, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    check_compiled(data, tmp_path)
