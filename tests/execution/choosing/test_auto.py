"""execution="auto": decisions follow measurements, stay in checkpoints, and measuring changes nothing."""

import copy
import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from torch import nn

import regrow
from regrow import native
from regrow.execution import execution_of
from regrow.execution.choosing import auto as automatic
from regrow.execution.choosing.timings import Timings
from tests.execution.automatic import DENSE_WINS, SPARSE_WINS, Stopwatch, net, sparse_layers, start, train

pytestmark = pytest.mark.skipif(not native.available(), reason="native kernels not built")
ALL = {"0", "4", "8", "10"}


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REGROW_CACHE", str(tmp_path / "cache"))


def test_first_step_is_masked_then_the_winner_runs():
    model, optimizer, handle = start(Stopwatch(*SPARSE_WINS))
    assert sparse_layers(handle) == set()
    assert "first training step" in handle.explain()[0].reason
    train(model, optimizer, 1)
    assert sparse_layers(handle) == ALL
    assert execution_of(model[0]) is not None
    assert handle.switch.verdicts == 1


def test_dense_wins_everywhere():
    model, optimizer, handle = start(Stopwatch(*DENSE_WINS))
    train(model, optimizer, 2)
    assert sparse_layers(handle) == set()
    assert [type(module) for module in model] == [type(module) for module in net()]
    assert all(row.reason == "dense is faster, no break-even" for row in handle.explain())


def test_one_layer_is_no_plural():
    one, two = frozenset("a"), frozenset("ab")
    assert automatic._judged({"masked": two, "predicted": one}, [{"masked": 2.0, "predicted": 1.0}])[1].endswith(
        "1 sparse layer"
    )


def test_a_dear_conversion_keeps_a_single_layer_dense(tmp_path, monkeypatch):
    """The last layer alone would win sparse, but not with the conversion before it; with a sparse neighbour it needs none."""
    slow = [("weight (5, 16) bias (5,) on 20x16 float32 dense", 3.0), ("weight (5, 16)", 2.0), ("enter 20x16", 5.0)]
    model, optimizer, handle = start(Stopwatch(*slow, *DENSE_WINS))
    train(model, optimizer, 1)
    assert sparse_layers(handle) == set()
    assert "converting layouts" in handle.explain()[3].reason
    neighbour = [
        ("Linear(in_features=12, out_features=16, bias=True) weight (16, 12) bias (16,) on 20x12 float32 dense", 3.0)
    ]
    neighbour += [("weight (16, 12)", 1.0), ("whole model, predicted", 1.0)]
    # An own cache: the first figures must not answer for these.
    monkeypatch.setenv("REGROW_CACHE", str(tmp_path / "other"))
    model, optimizer, handle = start(Stopwatch(*slow, *neighbour, *DENSE_WINS))
    train(model, optimizer, 1)
    assert sparse_layers(handle) == {"8", "10"}


def test_everything_sparse_is_tried_where_the_plan_has_holes_or_is_empty(tmp_path, monkeypatch):
    """Single modules say that dense is a little faster; the whole model knows better."""
    close = (("whole model, masked", 50.0), ("whole model, sparse", 20.0), ("whole model", 40.0), (" dense", 10.0))
    model, optimizer, handle = start(Stopwatch(*close, (" sparse", 11.0), (" window", 11.0), otherwise=0.1))
    train(model, optimizer, 1)
    assert sparse_layers(handle) == ALL
    monkeypatch.setenv("REGROW_CACHE", str(tmp_path / "other"))
    hopeless = Stopwatch(*close, (" sparse", 20.0), (" window", 20.0), otherwise=0.1)
    model, optimizer, handle = start(hopeless)
    train(model, optimizer, 1)
    assert sparse_layers(handle) == set()
    assert not any("whole model" in name for name in hopeless.asked)


def test_the_whole_model_has_the_last_word():
    model, optimizer, handle = start(Stopwatch(("whole model", 50.0), *SPARSE_WINS))
    train(model, optimizer, 1)
    assert sparse_layers(handle) == set()
    assert "the whole model is not" in handle.explain()[0].reason
    assert "50.0 ms masked, 50.0 ms with 4 sparse layers, which does not win" in str(handle.explain().note)


def test_a_narrow_gain_must_show_twice():
    stopwatch = Stopwatch(("whole model, predicted", 47.0), *SPARSE_WINS)
    model, optimizer, handle = start(stopwatch)
    train(model, optimizer, 1)
    assert stopwatch.asked.count("whole model, predicted") == 2
    assert sparse_layers(handle) == ALL


def test_windows_count():
    """Dense weight gradients in every step make sparse layers lose."""
    figures = (("window", 30.0), *SPARSE_WINS)
    model, optimizer, handle = start(Stopwatch(*figures), window_tolerance=0.0)
    train(model, optimizer, 1)
    assert sparse_layers(handle) == set()
    assert handle.explain()[0].sparse_ms == pytest.approx(30.0)
    model, optimizer, handle = start(Stopwatch(*figures), method="set", window_tolerance=1e-3)
    train(model, optimizer, 1)
    assert sparse_layers(handle) == ALL


def test_crossing_a_boundary_decides_again():
    stopwatch = Stopwatch(*SPARSE_WINS)
    model, optimizer, handle = start(stopwatch, "auto", "static")
    train(model, optimizer, 1)
    row = handle.explain()[0]
    assert 0 < row.break_even <= 1
    dense = {s.name: torch.ones_like(s.mask) for s in handle.parameters}
    handle.network.set_masks({s.name: s.mask.clone() for s in handle.parameters})
    assert not handle.switch.auto.pending
    stopwatch.figures[:0] = [("sparse 100%", 99.0), ("window 100%", 99.0)]
    verdict = handle.switch.auto.verdict
    handle.switch.auto.verdict = replace(verdict, times=tuple(replace(c, slope=40.0) for c in verdict.times))
    handle.network.set_masks(dense)
    assert handle.switch.auto.pending
    assert "decided again" in handle.explain().note
    train(model, optimizer, 1, first=1)
    assert sparse_layers(handle) == set()
    assert handle.switch.verdicts == 2
    assert execution_of(model[0]) is None


def test_topology_updates_without_a_crossing_decide_nothing():
    model, optimizer, handle = start(Stopwatch(*SPARSE_WINS))
    train(model, optimizer, 10)
    assert handle.updates == 1
    assert handle.switch.verdicts == 1


def test_all_sparse_equals_execution_sparse_bit_for_bit():
    model, optimizer, _ = start(Stopwatch(*SPARSE_WINS))
    losses = train(model, optimizer, 12)
    other, its_optimizer, its_handle = start(None, "masked")
    expected = train(other, its_optimizer, 1)
    its_handle.execute("sparse")
    expected += train(other, its_optimizer, 11, first=1)
    assert losses == expected
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True))


def test_measuring_leaves_no_trace():
    """With candidates really run, and hooks and dropout around, a run that stays masked equals a masked one."""
    seen = []
    runs = {}
    for execution in ("masked", "auto"):
        model, optimizer, handle = start(Stopwatch(("whole model", 50.0), *SPARSE_WINS, runs=True), execution)
        model[1].register_forward_hook(lambda *_: seen.append(1))
        model[0].weight.register_hook(lambda grad: seen.append(2))
        seen.clear()
        torch.manual_seed(3)
        loss = nn.functional.cross_entropy(model(torch.randn(20, 3, 8, 8)), torch.randint(5, (20,)))
        loss.backward()
        optimizer.step()
        drawn = torch.rand(3)
        parts = [*model.state_dict().values(), *(p.grad for p in model.parameters()), drawn]
        parts += [t for state in optimizer.state_dict()["state"].values() for t in state.values() if t is not None]
        after = train(model, optimizer, 10)
        runs[execution] = (parts, list(seen), after, handle.switch.verdicts)
    masked, measured = runs["masked"], runs["auto"]
    assert measured[3] == 1
    assert masked[1] == measured[1]
    assert all(torch.equal(a, b) for a, b in zip(masked[0], measured[0], strict=True))
    assert masked[2] == measured[2]


def test_state_keeps_the_decision_bit_for_bit():
    model, optimizer, handle = start(Stopwatch(*SPARSE_WINS))
    train(model, optimizer, 3)
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict(), handle.state_dict()))
    assert json.loads(json.dumps(saved[2]["execution"])) == saved[2]["execution"]
    expected = train(model, optimizer, 9, first=3)
    stopwatch = Stopwatch(*DENSE_WINS)
    model, optimizer, handle = start(stopwatch)
    for part, state in zip((model, optimizer, handle), saved, strict=True):
        part.load_state_dict(state)
    assert sparse_layers(handle) == ALL
    assert train(model, optimizer, 9, first=3) == expected
    assert stopwatch.asked == []


def test_state_before_the_decision_decides_later():
    saved = start(Stopwatch())[2].state_dict()
    model, optimizer, handle = start(Stopwatch(*SPARSE_WINS))
    handle.load_state_dict(saved)
    train(model, optimizer, 1)
    assert sparse_layers(handle) == ALL


def test_another_thread_count_or_machine_warns_and_keeps(monkeypatch):
    model, optimizer, handle = start(Stopwatch(*SPARSE_WINS))
    train(model, optimizer, 1)
    saved = handle.state_dict()
    _, held, other = start(Stopwatch())
    monkeypatch.setattr(automatic, "machine", lambda: "another machine, 64 threads")
    with pytest.warns(UserWarning, match="decided on .*1 threads.*64 threads: its verdict is kept"):
        other.load_state_dict(saved)
    assert sparse_layers(other) == ALL
    assert regrow.handle_of(held) is other


def test_state_of_older_releases_and_other_executions_load():
    saved = start(None, "masked")[2].state_dict()
    _, _kept, handle = start(Stopwatch())
    handle.load_state_dict(saved)
    assert handle.switch.auto.pending
    del saved["execution"]
    handle.load_state_dict(saved)
    assert handle.switch.auto.pending


@pytest.mark.parametrize("steps", [0, 2])
def test_copies_keep_the_decision(steps):
    model, optimizer, handle = start(Stopwatch(*SPARSE_WINS))
    train(model, optimizer, steps)
    twin, its_optimizer = copy.deepcopy((model, optimizer))
    copied = regrow.handle_of(its_optimizer)
    assert copied.model is twin
    copied.switch.auto._timer = Stopwatch(*SPARSE_WINS)
    assert train(twin, its_optimizer, 4, first=steps) == pytest.approx(
        train(model, optimizer, 4, first=steps), rel=1e-4
    )
    assert sparse_layers(copied) == sparse_layers(handle) == ALL
    assert copied.switch.auto is not handle.switch.auto


def test_evaluation_is_not_what_is_measured():
    stopwatch = Stopwatch(*SPARSE_WINS)
    model, optimizer, _ = start(stopwatch)
    with torch.no_grad():
        model.eval()(torch.randn(7, 3, 8, 8))
    model.train()
    train(model, optimizer, 1)
    assert any("20x3x8x8" in key for key in stopwatch.asked)
    assert not any("7x3x8x8" in key for key in stopwatch.asked)


def test_a_model_called_in_pieces_is_judged_by_its_modules():
    class Pieces(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(12, 16), nn.Linear(16, 4)

    model, optimizer, handle = start(Stopwatch(*SPARSE_WINS), model=Pieces())
    model.b(model.a(torch.randn(6, 12))).sum().backward()
    optimizer.step()
    assert sparse_layers(handle) == {"a", "b"}
    assert "not called as a whole" in handle.explain().note


def test_a_model_that_cannot_be_copied_stays_masked():
    class Lonely(nn.Sequential):
        def __deepcopy__(self, memo):
            raise TypeError("no copies")

    model, optimizer, handle = start(Stopwatch(*SPARSE_WINS), model=Lonely(nn.Linear(12, 4)))
    model(torch.randn(6, 12)).sum().backward()
    with pytest.warns(UserWarning, match="cannot be copied"):
        optimizer.step()
    assert sparse_layers(handle) == set()
    assert "cannot be copied" in handle.explain()[0].reason


def test_layers_without_kernels_stay_masked_with_the_reason(monkeypatch):
    monkeypatch.setattr(native, "library_path", lambda: None)
    stopwatch = Stopwatch(*SPARSE_WINS)
    model, optimizer, handle = start(stopwatch)
    train(model, optimizer, 2)
    assert stopwatch.asked == []
    assert "not built" in handle.explain()[0].reason


def test_channels_last_models_are_timed_as_such():
    stopwatch = Stopwatch(*SPARSE_WINS, runs=True)
    model, optimizer, handle = start(stopwatch, model=net().to(memory_format=torch.channels_last))
    train(model, optimizer, 2)
    assert any("channels_last" in key for key in stopwatch.asked)
    assert sparse_layers(handle) == ALL


def test_a_real_stopwatch_decides_once_and_explains():
    model, optimizer, handle = start(None)
    train(model, optimizer, 3)
    assert handle.switch.verdicts == 1
    for row in handle.explain():
        assert row.dense_ms > 0
        assert row.sparse_ms > 0
        assert row.reason
    text = str(handle.explain())
    for word in ("layer", "density", "dense ms", "sparse ms", "choice", "reason", "threads"):
        assert word in text


SECOND = """
import sys
from tests.execution.automatic import *
stopwatch = Stopwatch(*DENSE_WINS)
model, optimizer, handle = start(stopwatch)
train(model, optimizer, 1)
print(sorted(sparse_layers(handle)), [key for key in stopwatch.asked if not key.startswith("whole model")])
"""


def test_a_second_process_uses_the_timings_of_the_first():
    model, optimizer, _ = start(Stopwatch(*SPARSE_WINS))
    train(model, optimizer, 1)
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", SECOND], env={**os.environ, **threads}, capture_output=True, text=True)
    # The whole model is timed anew, and loses by the second stopwatch; single modules are not timed again.
    assert done.stdout.strip() == "[] []", done.stderr


def formats(model, optimizer):
    """How weights, their optimizer state and gradients of the convolutions lie."""
    found = set()
    for weight in (model[0].weight, model[4].weight):
        for tensor in (weight, weight.grad, optimizer.state[weight]["momentum_buffer"]):
            found.add("contiguous" if tensor.is_contiguous() else "channels_last")
    return found


def test_sparse_layers_keep_weights_and_state_in_ordinary_order_and_masked_ones_as_they_were():
    model, optimizer, handle = start(
        Stopwatch(*SPARSE_WINS), model=net().to(memory_format=torch.channels_last), density=0.2
    )
    held = handle.masks["0"]
    before = held.clone()
    stepped, step_present = [], handle.switch.step_present
    handle.switch.step_present = lambda: stepped.append(found := step_present()) or found
    train(model, optimizer, 3)
    assert sparse_layers(handle) == ALL
    assert formats(model, optimizer) == {"contiguous"}
    assert [len(found) for found in stepped] == [0, 4, 4]
    train(model, optimizer, 6, first=3)
    assert handle.updates == 1
    assert torch.equal(held, before)  # a mask that somebody holds stays that of its time
    assert not torch.equal(held, handle.masks["0"])
    handle.execute("masked")
    assert formats(model, optimizer) == {"channels_last"}
    train(model, optimizer, 1, first=9)
    assert formats(model, optimizer) == {"channels_last"}
    assert all((sparse.parameter[~sparse.mask] == 0).all() for sparse in handle.parameters)


def test_dense_decisions_leave_channels_last_alone():
    model, optimizer, handle = start(Stopwatch(*DENSE_WINS), model=net().to(memory_format=torch.channels_last))
    train(model, optimizer, 3)
    assert sparse_layers(handle) == set()
    assert formats(model, optimizer) == {"channels_last"}


def test_deciding_again_times_the_dense_model_as_it_would_run():
    stopwatch = Stopwatch(*SPARSE_WINS, runs=True)
    model, optimizer, handle = start(stopwatch, model=net().to(memory_format=torch.channels_last))
    train(model, optimizer, 2)
    stopwatch.asked.clear()
    os.remove(Timings().path)
    handle.switch.auto.listen()
    train(model, optimizer, 1, first=2)
    convolutions = [key for key in stopwatch.asked if "Conv2d" in key]
    assert convolutions
    assert all("channels_last" in key for key in convolutions)
    assert formats(model, optimizer) == {"contiguous"}


@pytest.mark.parametrize("steps", [1, 3, 9])
def test_channels_last_runs_resume_bit_for_bit(steps):
    def begin():
        return start(Stopwatch(*SPARSE_WINS), model=net().to(memory_format=torch.channels_last), density=0.2)

    model, optimizer, handle = begin()
    train(model, optimizer, steps)
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict(), handle.state_dict()))
    expected = train(model, optimizer, 12, first=steps)
    again, its_optimizer, its_handle = begin()
    for part, state in zip((again, its_optimizer, its_handle), saved, strict=True):
        part.load_state_dict(state)
    assert train(again, its_optimizer, 12, first=steps) == expected
    assert formats(again, its_optimizer) == formats(model, optimizer) == {"contiguous"}
    for mine, theirs in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(mine, theirs)
        assert torch.equal(optimizer.state[mine]["momentum_buffer"], its_optimizer.state[theirs]["momentum_buffer"])
