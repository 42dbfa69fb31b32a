"""The growth window: open in the last K steps before an update, known before each step."""

import copy

import pytest
import torch

import regrow
from regrow.errors import ConfigurationError
from tests.support.training import batches, bits, loss_of, sgd, small_net, sparse_run, train


def openings(handle, model, optimizer, count):
    """Before each step: does the handle ask for gradients of missing weights?"""
    found = []
    for batch in batches(count):
        found.append(handle.needs_missing_gradients)
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()
    return found


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"window_tolerance": 0}, [True] * 12),
        ({"window_tolerance": 0.3}, [False] * 1 + [True] * 5 + [False] * 1 + [True] * 5),
        ({"window_tolerance": 0.3, "steps": 12}, [False] * 1 + [True] * 5 + [False] * 6),
        ({"method": "set"}, [False] * 12),
        ({"method": "static"}, [False] * 12),
        ({"method": "rigl"}, [True] + [False] * 5 + [True] + [False] * 5),
    ],
)
def test_when_the_window_is_open(arguments, expected):
    """mu = 0.78 and tolerance 0.3 give K = ceil(log 0.3 / log 0.78) = 5 of 6 steps."""
    model, optimizer, handle = sparse_run(
        **{"steps": 60, "update_every": 6, "optimizer": lambda m: sgd(m, momentum=0.78), **arguments}
    )
    assert openings(handle, model, optimizer, 12) == expected


def test_the_widest_group_decides():
    model = small_net()
    groups = [{"params": model[0].parameters(), "momentum": 0.1}, {"params": model[2:].parameters(), "momentum": 0.5}]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    handle = regrow.sparsify(model, optimizer, density=0.3, steps=60, update_every=20, window_tolerance=1e-3)
    assert handle.window.length(0) == 10
    assert handle.parameters[0].moments.family is handle.parameters[1].moments.family


def test_the_window_forgets_after_an_update():
    model, optimizer, handle = sparse_run(
        update_every=6, window_tolerance=0.3, optimizer=lambda m: sgd(m, momentum=0.5)
    )
    train(model, optimizer, batches(6))
    assert handle.updates == 1
    assert handle.parameters[0].moments.first is None
    assert not handle.needs_missing_gradients


def test_nothing_is_kept_after_the_last_update():
    model, optimizer, handle = sparse_run(steps=10, update_every=4, window_tolerance=0)
    train(model, optimizer, batches(8))
    assert handle.updates == 2
    assert not handle.needs_missing_gradients
    assert all(sparse.moments.first is None for sparse in handle.parameters)


def test_no_copy_of_the_gradient_outside_the_window():
    model, _, handle = sparse_run(update_every=20, window_tolerance=0.5)
    assert not handle.needs_missing_gradients
    loss_of(model, batches(1)[0]).backward()
    assert all(sparse.incoming is None for sparse in handle.parameters)


def test_first_update_agrees_between_windows():
    """The masks of a window of K steps and of full momentum agree closely at the first update."""
    masks = []
    for tolerance in (0, 1e-3):
        model, optimizer, handle = sparse_run(
            steps=400, update_every=30, window_tolerance=tolerance, optimizer=lambda m: sgd(m, momentum=0.7)
        )
        assert handle.window.length(0) == (30 if tolerance == 0 else 20)
        train(model, optimizer, batches(30))
        assert handle.updates == 1
        masks.append(bits(handle))
    assert (masks[0] == masks[1]).float().mean() >= 0.99


@pytest.mark.parametrize("at", [3, 5, 6, 9])
def test_resume_inside_and_outside_the_window_is_bit_identical(at):
    arguments = {"update_every": 6, "window_tolerance": 0.3, "optimizer": lambda m: sgd(m, momentum=0.78)}
    model, optimizer, handle = sparse_run(**arguments)
    data = batches(14)
    train(model, optimizer, data[:at])
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict(), handle.state_dict()))
    train(model, optimizer, data[at:])
    fresh, fresh_optimizer, fresh_handle = sparse_run(seed=7, **arguments)
    fresh.load_state_dict(saved[0])
    fresh_optimizer.load_state_dict(saved[1])
    fresh_handle.load_state_dict(saved[2])
    train(fresh, fresh_optimizer, data[at:])
    assert torch.equal(bits(handle), bits(fresh_handle))
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), fresh.parameters(), strict=True))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"window_tolerance": 0}, 1.0),
        ({"window_tolerance": 0.3}, 5 / 6),
        ({"method": "set"}, 0.0),
        ({"method": "rigl"}, 1 / 6),
    ],
)
def test_share_of_steps_inside_windows(arguments, expected):
    options = {"steps": 60, "update_every": 6, "optimizer": lambda m: sgd(m, momentum=0.78), **arguments}
    _, _, handle = sparse_run(**options)
    assert handle.window.fraction(0) == pytest.approx(expected)


def test_no_share_after_the_last_update():
    model, optimizer, handle = sparse_run(steps=12, update_every=6, window_tolerance=0)
    openings(handle, model, optimizer, 7)
    assert handle.window.fraction(handle.step) == 0.0


def test_every_so_many_steps_of_the_window_count_back_from_the_update():
    model, optimizer, handle = sparse_run(update_every=10, window_tolerance=0.5, window_stride=3)
    needed = []
    for batch in batches(20):
        needed.append(handle.needs_missing_gradients)
        train(model, optimizer, [batch])
    # mu = 0.9 and a tolerance of a half: seven steps, of which the first, fourth and seventh count.
    once = [False, False, False, True, False, False, True, False, False, True]
    assert needed == once + once
    assert handle.window.fraction(0) == pytest.approx(0.3)


@pytest.mark.parametrize("make", [sgd, lambda model: torch.optim.Adam(model.parameters(), lr=0.01)])
def test_under_a_constant_gradient_a_stride_changes_nothing(make):
    """Each gradient stands for those between: the same momentum, to the last digits."""
    seen = []
    for stride in (1, 4):
        model = small_net()
        optimizer = make(model)
        handle = regrow.sparsify(
            model, optimizer, density=0.3, steps=100, update_every=30, window_tolerance=0.2, window_stride=stride
        )
        for _ in range(29):
            for index, parameter in enumerate(model.parameters()):
                parameter.grad = None
                loss = (parameter * (index + 1) * 0.01).sum()
                loss.backward()
            optimizer.step()
        seen.append([(sparse.moments.seen, sparse.moments.first) for sparse in handle.parameters])
    for (steps, whole), (thin_steps, thin) in zip(*seen, strict=True):
        assert thin_steps <= steps + 3
        assert thin_steps % 4 == 0
        mu = 0.9
        torch.testing.assert_close(thin / (1 - mu**thin_steps), whole / (1 - mu**steps), rtol=1e-4, atol=1e-7)


def test_full_momentum_has_no_stride():
    _, _, handle = sparse_run(window_tolerance=0.0, window_stride=4)
    assert handle.window.stride == 1


def test_a_stride_that_cannot_be_meant():
    with pytest.raises(ConfigurationError, match="window_stride must be a positive whole number"):
        sparse_run(window_stride=0)
