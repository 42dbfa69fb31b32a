"""Present-only optimizer steps against torch's own."""

import pytest
import torch

import regrow
from regrow import native
from regrow.errors import ExecutionWarning
from regrow.execution.kernels.optimizer import step_present
from regrow.marks import Marks
from regrow.support import Support

pytestmark = pytest.mark.skipif(not native.available(), reason="native kernels not built")
SHAPE = (17, 23)

SGD = [
    {"lr": 0.1},
    {"lr": 0.1, "momentum": 0.9},
    {"lr": 0.1, "momentum": 0.9, "weight_decay": 5e-4, "dampening": 0.1},
    {"lr": 0.1, "momentum": 0.9, "weight_decay": 5e-4, "nesterov": True},
    {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True},
]
ADAMW = [
    {"lr": 1e-2},
    {"lr": 1e-2, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1},
    {"lr": 1e-2, "maximize": True},
]


def start():
    generator = torch.Generator().manual_seed(0)
    mask = torch.rand(SHAPE, generator=generator) < 0.3
    weight = torch.randn(SHAPE, generator=generator) * mask
    return Support(mask), weight, [torch.randn(SHAPE, generator=generator) * mask for _ in range(4)]


def torch_steps(optimizer_class, weight, grads, options):
    parameter = torch.nn.Parameter(weight.clone())
    optimizer = optimizer_class([parameter], **options)
    for grad in grads:
        parameter.grad = grad.clone()
        optimizer.step()
    return parameter.detach()


def native_steps(optimizer_class, weight, grads, options, support):
    parameter = torch.nn.Parameter(weight.clone())
    optimizer = optimizer_class([parameter], **options)
    for grad in grads:
        parameter.grad = grad.clone()
        assert step_present(optimizer, [(parameter, optimizer.param_groups[0], support)]) == [True]
    return parameter.detach(), optimizer.state[parameter]


@pytest.mark.parametrize(
    ("optimizer", "options"), [(torch.optim.SGD, o) for o in SGD] + [(torch.optim.AdamW, o) for o in ADAMW]
)
def test_native_steps_are_torch_steps(optimizer, options):
    support, weight, grads = start()
    expected = torch_steps(optimizer, weight, grads, options)
    found, state = native_steps(optimizer, weight, grads, options, support)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    assert (found[~support.mask] == 0).all()
    for value in state.values():
        assert value.dim() == 0 or (value[~support.mask] == 0).all()


@pytest.mark.parametrize(
    ("optimizer", "options"), [(torch.optim.SGD, o) for o in SGD] + [(torch.optim.AdamW, o) for o in ADAMW]
)
def test_a_weight_steps_alike_wherever_it_is_stored(optimizer, options):
    """Compact storage steps whole vectors and a rest; dense-shaped storage one weight after another."""
    mask = torch.arange(200) % 7 > 0
    generator = torch.Generator().manual_seed(0)
    weight, *grads = (torch.randn(200, generator=generator) * mask for _ in range(100))
    support, present = Support(mask), Support(Marks(mask.shape, mask.nonzero().flatten()))
    assert present.is_compact
    assert present.nnz % 16
    found, _ = native_steps(optimizer, weight, grads, options, support)
    vectors = [tensor[support.mask] for tensor in (weight, *grads)]
    vector, _ = native_steps(optimizer, vectors[0], vectors[1:], options, present)
    assert torch.equal(vector, found[support.mask])


def test_missing_entries_are_not_touched():
    support, weight, _grads = start()
    weight[~support.mask] = 7.0
    options = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}
    found, _ = native_steps(torch.optim.SGD, weight, [torch.ones(SHAPE)], options, support)
    assert (found[~support.mask] == 7.0).all()
    assert (found[support.mask] != weight[support.mask]).all()


def test_what_native_code_cannot_step_is_left_alone():
    support, weight, grads = start()
    parameter = torch.nn.Parameter(weight.clone())
    for options, grad in (
        ({"lr": 0.1}, None),
        ({"lr": torch.tensor(0.1)}, grads[0]),
        ({"lr": 0.1, "amsgrad": True}, grads[0]),
        ({"lr": 0.1}, grads[0].t().contiguous().t()),
    ):
        optimizer = torch.optim.AdamW([parameter], **options)
        parameter.grad = grad
        assert step_present(optimizer, [(parameter, optimizer.param_groups[0], support)]) == [False]
        assert torch.equal(parameter, weight)


def trained(optimizer, native_step, steps=12, disturb=None, **options):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.ReLU(), torch.nn.Linear(30, 10))
    optimizer = optimizer(model.parameters(), **options)
    handle = regrow.sparsify(
        model, optimizer, density=0.2, steps=steps, update_every=4, execution="sparse", native_step=native_step
    )
    stepped = []
    original = handle.switch.step_present
    handle.switch.step_present = lambda: stepped.append(original()) or stepped[-1]
    for step in range(steps):
        if disturb is not None:
            disturb(model, step)
        x = torch.randn(16, 20, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        (model(x) ** 2).sum().mul(0.01).backward()
        before = model[0].weight.grad
        optimizer.step()
        assert model[0].weight.grad is before
        for sparse in handle.parameters:
            assert (sparse.parameter[~sparse.mask] == 0).all()
    return model, handle, [len(found) for found in stepped]


@pytest.mark.parametrize(("optimizer", "options"), [(torch.optim.SGD, SGD[3]), (torch.optim.AdamW, ADAMW[1])])
def test_a_run_with_native_steps_is_the_run_without(optimizer, options):
    native_model, native_handle, counts = trained(optimizer, True, **options)
    model, handle, none = trained(optimizer, False, **options)
    assert counts == [2] * 12
    assert none == [0] * 12
    for name, mask in handle.masks.items():
        assert torch.equal(mask, native_handle.masks[name])
    for mine, theirs in zip(native_model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)


def test_weights_that_somebody_wrote_to_take_the_dense_step_and_are_masked():
    def disturb(model, step):
        if step == 5:
            with torch.no_grad():
                model[0].weight.add_(0.1)

    with pytest.warns(
        ExecutionWarning, match=r"weights of 0\.weight lie outside its mask, so its layer computes dense"
    ):
        *_, counts = trained(torch.optim.SGD, True, disturb=disturb, lr=0.01, momentum=0.9)
    assert counts[4:7] == [2, 1, 2]


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.RMSprop])
def test_other_optimizers_step_themselves(optimizer):
    *_, counts = trained(optimizer, True, lr=0.01)
    assert counts == [0] * 12


def test_backward_through_weights_that_a_native_step_changed_is_refused():
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    regrow.sparsify(model, optimizer, density=0.2, steps=10, update_every=5, execution="sparse")
    loss = model(torch.randn(4, 8, requires_grad=True)).sum()
    loss.backward(retain_graph=True)
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize(("optimizer", "options"), [(torch.optim.SGD, SGD[3]), (torch.optim.AdamW, ADAMW[1])])
def test_state_that_native_code_cannot_walk_leaves_the_step_to_torch(optimizer, options):
    def run(strange):
        torch.manual_seed(0)
        model = torch.nn.Conv2d(6, 8, 3, bias=False)
        own = optimizer(model.parameters(), **options)
        handle = regrow.sparsify(model, own, "static", density=0.2, execution="sparse")
        counts = []
        for step in range(4):
            if strange and step == 2:
                state = own.state[model.weight]
                for name in (name for name, value in state.items() if value.dim() > 0):
                    state[name] = state[name].contiguous(memory_format=torch.channels_last)
            own.zero_grad()
            x = torch.randn(4, 6, 5, 5, generator=torch.Generator().manual_seed(step))
            (model(x) ** 2).sum().mul(0.01).backward()
            before = handle.switch.step_present
            handle.switch.step_present = lambda before=before: counts.append(len(found := before())) or found
            own.step()
            handle.switch.step_present = before
        return model.weight.detach(), counts

    (expected, native_counts), (weight, counts) = run(False), run(True)
    assert (native_counts, counts) == ([1, 1, 1, 1], [1, 1, 0, 0])
    torch.testing.assert_close(weight, expected, rtol=1e-5, atol=1e-6)
