"""Hugging Face's `Conv1D` (weight [inputs, outputs]) on kernels: dense numbers, topology updates, optimizers, checkpoints, `auto`."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import regrow
from regrow import native
from regrow.execution import attach, execution_of, unsupported

transformers = pytest.importorskip("transformers")
Conv1D = pytest.importorskip("transformers.pytorch_utils").Conv1D

pytestmark = pytest.mark.skipif(not native.available(), reason="native kernels not built")


class Alike(Conv1D):
    """Computes as its base class."""


class Doubling(Conv1D):
    """Computes something else."""

    def forward(self, x):
        return 2 * super().forward(x)


def mask_of(weight, density, seed=0):
    return torch.rand(weight.shape, generator=torch.Generator().manual_seed(seed)) < density


def pair(dtype=torch.float32, density=0.3, inputs=20, outputs=13, kind=Conv1D):
    """A dense layer in double precision and the same on kernels, with their mask."""
    torch.manual_seed(0)
    dense = kind(outputs, inputs).double()
    mask = mask_of(dense.weight, density)
    with torch.no_grad():
        dense.weight.copy_(torch.randn_like(dense.weight) * mask)
        dense.bias.normal_()
    sparse = copy.deepcopy(dense).to(dtype)
    return dense, sparse, attach(sparse, mask), mask


def passes(module, x, grad):
    x = x.clone().requires_grad_()
    module.zero_grad()
    y = module(x)
    y.backward(grad)
    return y.detach(), x.grad, module.weight.grad, module.bias.grad


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("density", [0.0, 0.05, 0.3, 1.0])
@pytest.mark.parametrize("shape", [(5, 20), (2, 3, 20), (20,), (70, 20), (0, 20)])
def test_all_passes_are_those_of_the_dense_layer(dtype, density, shape):
    dense, sparse, execution, mask = pair(dtype, density)
    x, grad = torch.randn(shape, dtype=torch.float64), torch.randn(*shape[:-1], 13, dtype=torch.float64)
    y, dx, dw, db = passes(dense, x, grad)
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 1e-12, "atol": 1e-12}
    for window in (False, True, False):
        execution.dense_gradient(window)
        found = passes(sparse, x.to(dtype), grad.to(dtype))
        expected = (y, dx, dw if window else dw * mask, db)
        for ours, theirs in zip(found, expected, strict=True):
            assert ours.dtype == dtype
            torch.testing.assert_close(ours.double(), theirs, **tolerance)


def test_gradients_reach_beyond_the_mask_where_asked():
    dense, sparse, execution, mask = pair(torch.float64)
    reach = mask | mask_of(mask, 0.2, seed=1)
    execution.update(mask, reach)
    x, grad = torch.randn(6, 20, dtype=torch.float64), torch.randn(6, 13, dtype=torch.float64)
    torch.testing.assert_close(passes(sparse, x, grad)[2], passes(dense, x, grad)[2] * reach)


def test_inputs_in_any_strides():
    dense, sparse, *_ = pair(torch.float64)
    x = torch.randn(20, 9, dtype=torch.float64).t()
    torch.testing.assert_close(sparse(x), dense(x))


def test_kernels_compute_and_are_counted():
    _, sparse, _, mask = pair()
    with FlopCounterMode(display=False) as counter:
        sparse(torch.randn(7, 20)).sum().backward()
    # The input needs no gradient: output and weight gradient are left.
    assert counter.get_total_flops() == 2 * 2 * 7 * int(mask.sum())


def test_which_classes_have_kernels():
    assert unsupported(Conv1D(3, 4)) is None
    assert unsupported(Alike(3, 4)) is None
    assert "does not compute as" in unsupported(Doubling(3, 4))
    dense, sparse, *_ = pair(torch.float64, kind=Alike)
    x = torch.randn(4, 20, dtype=torch.float64)
    torch.testing.assert_close(sparse(x), dense(x))


def test_the_module_stays_what_it_was():
    dense, sparse, execution, _ = pair(torch.float64)
    assert repr(sparse) == repr(dense)
    x = torch.randn(4, 20, dtype=torch.float64)
    for twin in (copy.deepcopy(sparse), pickle.loads(pickle.dumps(sparse))):
        assert isinstance(twin, Conv1D)
        torch.testing.assert_close(twin(x), dense(x))
    execution.detach()
    assert type(sparse) is Conv1D
    assert execution_of(sparse) is None


def test_unfit_inputs_and_second_derivatives_are_refused():
    _, sparse, *_ = pair()
    with pytest.raises(ValueError, match=r"input has shape \(4, 19\), expected \(..., 20\)"):
        sparse(torch.randn(4, 19))
    with pytest.raises(TypeError, match="convert one of them"):
        sparse(torch.randn(4, 20, dtype=torch.float64))
    x = torch.randn(4, 20, requires_grad=True)
    (dx,) = torch.autograd.grad(sparse(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="first derivatives only"):
        dx.square().sum().backward()


def test_compiled_models_compute_it_dense():
    dense, sparse, *_ = pair(torch.float64)
    x = torch.randn(4, 20, dtype=torch.float64)
    torch.testing.assert_close(torch.compile(sparse, backend="eager", fullgraph=True)(x), dense(x))


# ---------------------------------------------------------------------------------------------- in training


def gpt2(seed=0):
    torch.manual_seed(seed)
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 8, "vocab_size": 11}
    off = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **off))


def trained(execution, make, steps=9, model=None, seed=0):
    model = gpt2(seed) if model is None else model
    optimizer = make(model.parameters())
    handle = regrow.sparsify(model, optimizer, density=0.2, steps=20, update_every=3, execution=execution)
    losses = train(model, optimizer, range(steps))
    return model, optimizer, handle, losses


def train(model, optimizer, steps):
    losses = []
    for step in steps:
        tokens = torch.randint(11, (6, 8), generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


OPTIMIZERS = [
    lambda weights: torch.optim.SGD(weights, lr=0.05, momentum=0.9, nesterov=True),
    lambda weights: torch.optim.AdamW(weights, lr=1e-3),
    lambda weights: torch.optim.Adam(weights, lr=1e-3),
]


@pytest.mark.parametrize("make", OPTIMIZERS, ids=["sgd", "adamw", "adam"])
def test_training_is_that_of_masked_execution(make):
    masked, _, expected, losses = trained("masked", make)
    model, _, handle, found = trained("sparse", make)
    assert {row.execution for row in handle.explain()} == {"sparse"}
    assert handle.updates == expected.updates == 3
    assert handle.nonzeros == handle.budget
    assert found == pytest.approx(losses, rel=1e-4)
    for name, mask in handle.masks.items():
        assert torch.equal(mask, expected.masks[name]), name
        weight = model.get_submodule(name).weight
        assert not bool(weight[~mask].any()), name
        torch.testing.assert_close(weight, masked.get_submodule(name).weight, rtol=1e-3, atol=1e-4)


def test_a_resumed_run_has_the_same_bits():
    whole, *_ = trained("sparse", OPTIMIZERS[0], steps=12)
    model, optimizer, handle, _ = trained("sparse", OPTIMIZERS[0], steps=5)
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict(), handle.state_dict()))
    again, optimizer, handle, _ = trained("sparse", OPTIMIZERS[0], steps=0, seed=1)
    for part, state in zip((again, optimizer, handle), saved, strict=True):
        part.load_state_dict(state)
    train(again, optimizer, range(5, 12))
    for name, value in whole.state_dict().items():
        assert torch.equal(again.state_dict()[name], value), name


@pytest.mark.parametrize(("sparse_ms", "choice"), [(0.1, "sparse"), (10.0, "masked")])
def test_auto_times_and_chooses(monkeypatch, sparse_ms, choice):
    model = gpt2()
    optimizer = OPTIMIZERS[0](model.parameters())
    handle = regrow.sparsify(model, optimizer, density=0.2, steps=20, update_every=3)

    def timer(candidates):
        for run in candidates.values():
            run()
        fast = ("sparse", "window", "planned")
        return {key: sparse_ms if any(word in key for word in fast) else 1.0 for key in candidates}

    handle.switch.timer = timer
    handle.execute("auto")
    train(model, optimizer, range(2))
    assert {row.execution for row in handle.explain()} == {choice}
    kinds = {execution_of(module) is not None for module in model.modules() if isinstance(module, Conv1D)}
    assert kinds == {choice == "sparse"}


def test_layers_between_others_agree_with_linear_ones():
    torch.manual_seed(0)
    first = nn.Sequential(Conv1D(32, 12), nn.ReLU(), Conv1D(5, 32)).double()
    plain = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 5)).double()
    with torch.no_grad():
        for ours, theirs in ((first[0], plain[0]), (first[2], plain[2])):
            mask = mask_of(ours.weight, 0.3)
            ours.weight.mul_(mask)
            theirs.weight.copy_(ours.weight.t())
            theirs.bias.copy_(ours.bias)
            attach(ours, mask)
            attach(theirs, mask.t().contiguous())
    x = torch.randn(9, 12, dtype=torch.float64)
    y, z = first(x), plain(x)
    torch.testing.assert_close(y, z)
    y.square().sum().backward()
    z.square().sum().backward()
    torch.testing.assert_close(first[0].weight.grad.t(), plain[0].weight.grad)
