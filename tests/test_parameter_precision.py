"""Gradients on the way to the optimizer in lower and higher precision, and in other memory formats."""

import pytest
import torch
from torch import nn
from torch.amp import GradScaler

import regrow
from tests.support.training import (
    assert_sparse,
    batches,
    bits,
    loss_of,
    sgd,
    small_net,
    sparse_run,
    train,
)


def first(handle):
    return handle.parameters[0]


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("make", [sgd, lambda m, **k: torch.optim.Adam(m.parameters(), lr=1e-2, **k)])
@pytest.mark.parametrize("method", ["sparse-momentum", "rigl"])
def test_overflowed_steps_are_no_steps(make, fused, method):
    """A scaler run whose steps 0, 5 and 8 overflow equals, bit for bit, the run without them (scale is a power of two)."""
    arguments = {"method": method, "optimizer": lambda m: make(m, fused=fused), "window_tolerance": 0}
    plain, plain_optimizer, plain_handle = sparse_run(**arguments)
    model, optimizer, handle = sparse_run(**arguments)
    scaler = GradScaler("cpu", init_scale=2.0**10, growth_interval=10_000)
    data = batches(13)
    for batch in data:
        plain_optimizer.zero_grad()
        loss_of(plain, batch).backward()
        plain_optimizer.step()
    for index, batch in enumerate(data):
        if index in (0, 5, 8):
            counted = (handle.step, handle.updates, first(handle).moments.seen, bits(handle).clone())
            _scaled_step(model, optimizer, scaler, batch, float("inf"))
            scaler.update(2.0**10)
            assert (handle.step, handle.updates, first(handle).moments.seen) == counted[:3]
            assert torch.equal(bits(handle), counted[3])
            assert_sparse(handle)
        _scaled_step(model, optimizer, scaler, batch, 1.0)
        scaler.update()
    assert handle.step == 13
    assert torch.equal(bits(handle), bits(plain_handle))
    for mine, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-7)
    evidence = [run.parameters[0].moments.first for run in (handle, plain_handle)]
    if method == "sparse-momentum":
        torch.testing.assert_close(*evidence, rtol=1e-5, atol=1e-7)


def _scaled_step(model, optimizer, scaler, batch, blow_up):
    optimizer.zero_grad()
    scaler.scale(loss_of(model, batch) * blow_up).backward()
    scaler.step(optimizer)


@pytest.mark.parametrize("fused", [False, True])
def test_unscaled_and_clipped_under_a_scaler(fused):
    plain, plain_optimizer, plain_handle = sparse_run(optimizer=lambda m: sgd(m, fused=fused))
    model, optimizer, handle = sparse_run(optimizer=lambda m: sgd(m, fused=fused))
    scaler = GradScaler("cpu", init_scale=2.0**8)
    for batch in batches(9):
        plain_optimizer.zero_grad()
        loss_of(plain, batch).backward()
        nn.utils.clip_grad_norm_(plain.parameters(), 0.1)
        plain_optimizer.step()
        optimizer.zero_grad()
        scaler.scale(loss_of(model, batch)).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()
    assert torch.equal(bits(handle), bits(plain_handle))
    torch.testing.assert_close(first(handle).moments.first, first(plain_handle).moments.first, rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("method", ["deep-r", "sr-ste", "top-kast"])
def test_terms_that_methods_add_to_the_gradient_are_not_divided_by_the_scale(method):
    runs = []
    for scale in (1.0, 2.0**10):
        model, optimizer, handle = sparse_run(method=method, density=0.5, optimizer=lambda m: sgd(m, fused=True))
        scaler = GradScaler("cpu", init_scale=scale)
        for batch in batches(4):
            _scaled_step(model, optimizer, scaler, batch, 1.0)
            scaler.update()
        runs.append((bits(handle), [p.detach() for p in model.parameters()]))
    assert torch.equal(runs[0][0], runs[1][0])
    for mine, theirs in zip(runs[0][1], runs[1][1], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-8)


def test_bf16_autocast():
    model, optimizer, handle = sparse_run()
    start = bits(handle).clone()
    for batch in batches(9):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        assert_sparse(handle)
    assert not torch.equal(bits(handle), start)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("make", [sgd, lambda m: torch.optim.AdamW(m.parameters(), lr=1e-2)])
def test_parameters_of_other_types(dtype, make):
    model = small_net().to(dtype)
    optimizer = make(model)
    handle = regrow.sparsify(model, optimizer, density=0.3, steps=40, update_every=4)
    start = bits(handle).clone()
    data = [(x.to(dtype), y) for x, y in batches(9)]
    train(model, optimizer, data, lambda: assert_sparse(handle))
    assert handle.updates == 2
    assert not torch.equal(bits(handle), start)
    assert model[0].weight.dtype == dtype
    evidence = first(handle).moments.first
    assert evidence.dtype == (torch.float32 if dtype == torch.bfloat16 else torch.float64)


def test_channels_last_before_and_after():
    for early in (True, False):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(32, 3))
        if early:
            model.to(memory_format=torch.channels_last)
        optimizer = sgd(model, lr=0.01)
        handle = regrow.sparsify(model, optimizer, density=0.3, steps=40, update_every=2)
        if not early:
            model.to(memory_format=torch.channels_last)
        data = [(torch.randn(4, 3, 6, 6), torch.randint(3, (4,))) for _ in range(5)]
        train(model, optimizer, data, lambda handle=handle: assert_sparse(handle))
        assert handle.updates == 2


@pytest.mark.parametrize("order", [(0,), (0, 1), (1, 0)])
def test_an_overflow_at_missing_weights_lowers_the_scale(order):
    """Growth looks at their gradients: hidden from the scaler, infinity would stay until the update, which refuses it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 2))
    optimizer = sgd(model)
    handle = regrow.sparsify(model, optimizer, density=0.5, steps=40, update_every=4, window_tolerance=0)
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[0.5, 0.5, 0, 0], [0.5, 0.5, 0, 0]]))
    handle.masks_from_zeros()
    scaler = GradScaler("cpu", init_scale=2.0**14, growth_interval=10_000)
    x = torch.tensor([[0.1, 0.2, 0.3, 1000.0], [0.3, 0.1, 0.2, 1000.0]])
    parts = (x, x.clamp(max=1.0))
    while handle.step < 9:
        optimizer.zero_grad()
        for part in order:  # micro-batches
            with torch.autocast("cpu", dtype=torch.float16):
                loss = nn.functional.cross_entropy(model(parts[part]).float(), torch.tensor([0, 1]))
            scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() > 1
        assert_sparse(handle)
    assert scaler.get_scale() < 2.0**14
    assert handle.updates == 2


def test_large_finite_gradients_of_half_precision_are_masked():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64)).half()
    handle = regrow.sparsify(model, sgd(model), density=0.1, steps=40, update_every=4, window_tolerance=0)
    model(torch.rand(8, 64).half()).mul(100).sum().backward()
    grad = model[0].weight.grad
    assert grad.isfinite().all()
    assert not grad[~handle.masks["0"]].any()
