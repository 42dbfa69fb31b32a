"""A real Accelerate loop: wrapped optimizer, accumulation, clipping, mixed precision."""

import warnings

import pytest
import torch

import regrow
from tests.support.training import assert_sparse, batches, bits, loss_of, same_weights, sgd, small_net, train

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    accelerate = pytest.importorskip("accelerate", exc_type=ImportError)

pytestmark = pytest.mark.filterwarnings("ignore")
ARGUMENTS = {"density": 0.3, "steps": 40, "update_every": 4}


@pytest.fixture(autouse=True)
def fresh_state():
    yield
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerate.state.GradientState._reset_state()


def prepared(when, **options):
    accelerator = accelerate.Accelerator(cpu=True, **options)
    model = small_net()
    optimizer = sgd(model)
    if when == "before":
        handle = regrow.sparsify(model, optimizer, **ARGUMENTS)
    model, optimizer = accelerator.prepare(model, optimizer)
    if when == "after":
        handle = regrow.sparsify(model, optimizer, **ARGUMENTS)
    return accelerator, model, optimizer, handle


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_loop_equals_the_plain_one(when):
    accelerator, model, optimizer, handle = prepared(when)
    data = batches(13)
    for batch in data:
        optimizer.zero_grad()
        accelerator.backward(loss_of(model, batch))
        optimizer.step()
        assert_sparse(handle)
    plain = small_net()
    plain_optimizer = sgd(plain)
    plain_handle = regrow.sparsify(plain, plain_optimizer, **ARGUMENTS)
    train(plain, plain_optimizer, data)
    assert regrow.handle_of(optimizer) is handle
    assert handle.updates == 3
    assert torch.equal(bits(handle), bits(plain_handle))
    assert same_weights(accelerator.unwrap_model(model), plain)


def test_accumulation_counts_optimizer_steps():
    accelerator, model, optimizer, handle = prepared("after", gradient_accumulation_steps=3)
    for batch in batches(27):
        with accelerator.accumulate(model):
            accelerator.backward(loss_of(model, batch))
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
    assert handle.step == 9
    assert handle.updates == 2
    assert_sparse(handle)


def test_bf16():
    accelerator, model, optimizer, handle = prepared("after", mixed_precision="bf16")
    for batch in batches(9):
        optimizer.zero_grad()
        accelerator.backward(loss_of(model, batch))
        optimizer.step()
        assert_sparse(handle)
    assert handle.updates == 2
