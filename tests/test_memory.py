"""Memory that explains itself: each storage counted once, predictions told apart from what exists."""

import pytest
import torch
from torch import nn

import regrow
from regrow.execution import available
from regrow.execution.kernels.pattern import Geometry, Plans
from regrow.memory import PARTS, account, readable
from regrow.passing import saved_bytes
from regrow.support import Support

needs_kernels = pytest.mark.skipif(not available(), reason="the native kernels are not built here")
SIZES = (20 * 30, 30 * 10)


def begun(optimizer="SGD", **arguments):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 10))
    options = {"momentum": 0.9} if optimizer == "SGD" else {}
    stepper = getattr(torch.optim, optimizer)(model.parameters(), lr=0.1, **options)
    given = {"density": 0.1, "steps": 100, "update_every": 50, "window_tolerance": 0.5, **arguments}
    return model, stepper, regrow.sparsify(model, stepper, **given)


def step(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(8, 20)).sum().backward()
    optimizer.step()


@pytest.mark.parametrize(("optimizer", "slots"), [("SGD", 1), ("AdamW", 2)])
def test_predictions_are_what_training_makes(optimizer, slots):
    model, stepper, handle = begun(optimizer)
    before = handle.memory()
    assert before.predicted == ("gradients", "optimizer")
    step(model, stepper)
    after = handle.memory()
    assert after.predicted == ()
    counters = slots == 2  # AdamW counts its steps in a number of 4 bytes for each parameter
    for old, new, size in zip(before.rows[:2], after.rows[:2], SIZES, strict=True):
        assert old.weights == new.weights == new.gradients == 4 * size
        assert new.optimizer == slots * 4 * size + 4 * counters
        assert old.optimizer == slots * 4 * size
        assert new.dense == 4 * size * (2 + slots)
    assert after.sum("total") == sum(row.total for row in after) == sum(after.sum(part) for part in PARTS)


def test_masks_and_history_are_a_byte_and_two_bits_for_each_weight():
    _, _, handle = begun()
    for row, size in zip(handle.memory().rows[:2], SIZES, strict=True):
        assert row.masks == size
        assert row.history == (size + 7) // 8  # no topology update yet: the first mask is the ever-present one too
        assert row.present == handle.network.counts[0 if size == SIZES[0] else 1]


def test_evidence_of_a_window_is_counted_and_goes_with_it():
    model, optimizer, handle = begun(update_every=2, window_tolerance=0)
    assert handle.memory().sum("evidence") == 0
    step(model, optimizer)
    assert handle.memory().sum("evidence") == 2 * 4 * sum(SIZES), "the last gradient and the average"


def test_an_example_measures_activations_and_leaves_no_trace():
    model, _, handle = begun()
    norm = nn.BatchNorm1d(10)
    whole = nn.Sequential(model, norm)
    before, state = {n: b.clone() for n, b in whole.named_buffers()}, torch.get_rng_state()
    assert saved_bytes(whole, torch.ones(8, 20)) > 0
    assert all(torch.equal(buffer, before[name]) for name, buffer in whole.named_buffers())
    assert torch.equal(torch.get_rng_state(), state)
    found = handle.memory(torch.ones(8, 20))
    # The input, and the ReLU's output, which both it and the next layer keep.
    assert found.activations == 4 * 8 * (20 + 30)
    assert found.total == found.sum("total") + found.activations
    assert all(parameter.grad is None for parameter in model.parameters())


def test_tied_weights_are_counted_once():
    first, second = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)
    second.weight = first.weight
    model = nn.Sequential(first, second)
    found = account(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert (found.sum("weights"), found.sum("optimizer"), found.dense) == (256, 0, 512)


@needs_kernels
def test_lists_are_as_large_as_the_library_says():
    mask = torch.rand(30, 20, generator=torch.Generator().manual_seed(0)) < 0.1
    plans, bytes_of = Plans(), []
    for dtype in (torch.float32, torch.float64):
        bytes_of.append(plans.of(Support(mask), Geometry(), False, 1, 1, dtype).nbytes)
    entries = int(mask.sum())
    assert all(count >= 2 * entries for count in bytes_of), "where its input is: 2 bytes"
    assert plans.nbytes == sum(bytes_of)
    more = Plans().of(Support(~mask), Geometry(), False, 1, 1, torch.float32).nbytes
    assert more - bytes_of[0] >= 2 * (600 - 2 * entries)


@needs_kernels
@pytest.mark.parametrize("transposed", [False, True])
def test_large_linear_layers_need_little_more_than_two_bytes_per_weight(transposed):
    mask = torch.rand(768, 768, generator=torch.Generator().manual_seed(0)) < 0.3
    plan = Plans().of(Support(mask), Geometry(), transposed, 1, 1, torch.float32)
    assert 2 * mask.sum() < plan.nbytes < 3 * mask.sum()


@needs_kernels
def test_kernels_lists_are_counted():
    model, optimizer, handle = begun(execution="sparse")
    assert handle.memory().sum("lists") == sum((size + 7) // 8 for size in SIZES), (
        "only the bits that operators are given"
    )
    masks, gradients = (handle.memory().sum(part) for part in ("masks", "gradients"))
    step(model, optimizer)
    lists = handle.memory().sum("lists")
    assert (masks, gradients) == tuple(handle.memory().sum(part) for part in ("masks", "gradients"))
    assert lists > 2 * 6 * handle.nonzeros, "plans of both passes"
    held = handle.memory(torch.ones(8, 20))
    assert held.sum("gradients") == gradients, "an example leaves no second buffer beside gradients that are held"
    fresh = begun(execution="sparse")
    assert fresh[2].memory(torch.ones(8, 20)).sum("lists") > 2 * 6 * handle.nonzeros, "an example makes them too"


def test_the_table_says_what_is_predicted():
    _, _optimizer, handle = begun()
    text, page = str(handle.memory()), handle.memory()._repr_html_()
    for word in (
        "weights",
        "grads",
        "state",
        "lists",
        "masks",
        "ratio",
        "predicted",
        "2 vectors",
    ):
        assert word in text
        assert word in page


def test_readable():
    assert [readable(n) for n in (0, 999, 1000, 99_949, 100_000, 999_999, 10**12, 5 * 10**15)] == [
        "0", "999 B", "1.0 kB", "99.9 kB", "100 kB", "1,000 kB", "1.0 TB", "5,000 TB",
    ]  # fmt: skip
