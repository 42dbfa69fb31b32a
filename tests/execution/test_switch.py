"""sparsify(..., execution="sparse"): the same training on native kernels, in step with masks and growth windows."""

import contextlib
import copy
import pickle

import pytest
import torch
from torch import nn

import regrow
from regrow import native
from regrow.errors import ConfigurationError, UnsupportedError
from regrow.execution import execution_of

from .small import net, start, train

pytestmark = pytest.mark.skipif(not native.available(), reason="native kernels not built")


def overlap(masks, others):
    """Share of the present weights of one network that another has too."""
    shared = sum(int((mask & others[name]).sum()) for name, mask in masks.items())
    return shared / sum(int(mask.sum()) for mask in masks.values())


def test_overlap_counts_present_weights_only():
    masks = {"a": torch.tensor([True, True, False, False]), "b": torch.tensor([True, True, False])}
    others = {"a": torch.tensor([True, False, True, False]), "b": torch.tensor([True, True, False])}
    assert overlap(masks, masks) == 1
    assert overlap(masks, others) == 0.75


@pytest.mark.parametrize("method", ["sparse-momentum", "rigl", "set", "top-kast", "static"])
def test_sparse_and_masked_train_alike(method):
    """Losses over the first 20 steps; masks right after the first topology update, at the end of the 8th step."""
    losses, masks, before = {}, {}, {}
    for execution in ("masked", "sparse"):
        model, optimizer, handle = start(execution, method)
        before[execution] = {name: mask.clone() for name, mask in handle.masks.items()}
        losses[execution] = train(model, optimizer, 8)
        masks[execution] = {name: mask.clone() for name, mask in handle.masks.items()}
        assert handle.updates == (method != "static")
        losses[execution] += train(model, optimizer, 12, first=8)
    assert losses["sparse"] == pytest.approx(losses["masked"], rel=1e-4)
    assert overlap(masks["masked"], masks["sparse"]) >= 0.995
    assert (overlap(masks["sparse"], before["sparse"]) < 0.995) == (method != "static")


def test_layers_follow_topology_updates():
    model, optimizer, handle = start("sparse")
    before = handle.masks["0"].clone()
    train(model, optimizer, 9)
    assert not torch.equal(before, handle.masks["0"])
    for layer in handle.network.layers:
        assert torch.equal(execution_of(layer.module).pattern.mask, handle.masks[layer.name])


def test_dense_gradients_only_inside_growth_windows(monkeypatch):
    model, optimizer, handle = start("sparse")
    from regrow.execution.kernels import gradient

    steps = []
    original = gradient.dense_weight_gradient
    monkeypatch.setattr(gradient, "dense_weight_gradient", lambda *a: steps.append(handle.step) or original(*a))
    train(model, optimizer, 16)
    window = handle.window.length(0)
    assert 0 < window < 8
    assert set(steps) == {t for t in range(16) if 8 - t % 8 <= window}


def test_gradients_outside_windows_are_zero_at_missing_weights():
    model, optimizer, handle = start("sparse", "static")
    train(model, optimizer, 2)
    for sparse in handle.parameters:
        assert sparse.arrives_masked(sparse.parameter.grad, sparse.support)
        assert int((sparse.parameter.grad[~sparse.mask] != 0).sum()) == 0


@pytest.mark.parametrize("also", ["penalty", "tied", "micro-batches"])
def test_gradients_that_do_not_come_from_the_kernel_alone_are_masked(also):
    model = nn.Sequential(nn.Linear(9, 9), nn.ReLU(), nn.Linear(9, 9))
    if also == "tied":
        model[2].weight = model[0].weight
    model, _, handle = start("sparse", "static", model=model)
    for _ in range(2 if also == "micro-batches" else 1):
        loss = model(torch.randn(4, 9)).square().mean()
        (loss + (model[0].weight - 1).square().sum() if also == "penalty" else loss).backward()
    for sparse in handle.parameters:
        assert int((sparse.parameter.grad[sparse.mask] != 0).sum()) > 0
        assert int((sparse.parameter.grad[~sparse.mask] != 0).sum()) == 0


def test_state_resumes_bit_for_bit():
    model, optimizer, handle = start("sparse")
    train(model, optimizer, 11)
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict(), handle.state_dict()))
    expected = train(model, optimizer, 9, first=11)
    model, optimizer, handle = start("sparse")
    for part, state in zip((model, optimizer, handle), saved, strict=True):
        part.load_state_dict(state)
    assert train(model, optimizer, 9, first=11) == expected


def test_copies_compute_and_train_sparse():
    model, optimizer, handle = start("sparse")
    train(model, optimizer, 5)
    twin, its_optimizer = copy.deepcopy((model, optimizer))
    theirs, ours = train(twin, its_optimizer, 6, first=5), train(model, optimizer, 6, first=5)
    assert theirs == pytest.approx(ours, rel=1e-4)
    copied = regrow.handle_of(its_optimizer)
    assert copied.switch.execution == "sparse"
    assert copied is not handle


def test_a_lone_copy_of_the_model_stays_correct_after_updates():
    model, optimizer, handle = start("sparse")
    average = copy.deepcopy(model)
    train(model, optimizer, 9)
    average.load_state_dict(model.state_dict())
    x = torch.randn(4, 3, 8, 8)
    torch.testing.assert_close(handle.mask_(average).eval()(x), model.eval()(x), rtol=1e-4, atol=1e-5)


def test_densify_and_detach_restore_ordinary_modules():
    model, optimizer, handle = start("sparse")
    names = list(model.state_dict())
    handle.densify()
    assert [type(module) for module in model] == [type(module) for module in net()]
    assert list(model.state_dict()) == names
    handle.execute("sparse")
    assert execution_of(model[0]) is not None
    handle.detach()
    assert execution_of(model[0]) is None
    train(model, optimizer, 1)


def test_explain_names_layer_density_execution_and_reason():
    model = nn.Sequential(nn.Linear(8, 8), nn.ConvTranspose1d(8, 8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    handle = regrow.sparsify(model, optimizer, density=0.5, steps=10, update_every=5, execution="sparse")
    linear, transposed = handle.explain()
    assert (linear.layer, linear.execution, linear.density) == ("0", "sparse", 0.5)
    assert transposed.execution == "masked"
    assert "ConvTranspose1d" in transposed.reason
    handle.densify()
    assert {choice.execution for choice in handle.explain()} == {"masked"}


def test_unknown_execution_is_refused():
    with pytest.raises(ConfigurationError, match="did you mean 'sparse'"):
        start("sparce")


def test_without_kernels_sparse_is_refused_and_masked_works(monkeypatch):
    monkeypatch.setattr(native, "library_path", lambda: None)
    with pytest.raises(UnsupportedError, match="C\\+\\+17 compiler"):
        start("sparse")
    model, optimizer, _ = start("masked")
    train(model, optimizer, 1)


def bf16():
    return torch.autocast("cpu", dtype=torch.bfloat16)


@pytest.mark.parametrize("dense", [None, "0", "4", "8"])
def test_sparse_layers_compute_in_float32_under_autocast(dense):
    """With one layer left dense, which computes in bfloat16, the others still take what arrives and answer in float32."""
    model, _, handle = start("sparse", "static", scope="fully-sparse" if dense is None else f"dense:{dense}")
    kinds = {}
    for name, module in model.named_children():
        if isinstance(module, nn.Conv2d | nn.Linear):
            module.register_forward_hook(lambda module, inputs, output, name=name: kinds.update({name: output.dtype}))
    x, grad = torch.randn(20, 3, 8, 8), torch.randn(20, 5)
    results = []
    for precision in (contextlib.nullcontext(), bf16()):
        model.zero_grad()
        with precision:
            y = model(x)
        y.backward(grad.to(y.dtype))
        gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
        results.append({"output": y.detach().float(), **gradients})
    assert kinds == {name: torch.bfloat16 if name == dense else torch.float32 for name in kinds}
    assert set(handle.masks) == kinds.keys() - {dense}
    for name, full in results[0].items():
        half = results[1][name]
        assert half.dtype == torch.float32
        assert half.isfinite().all()
        if dense is None:
            assert torch.equal(half, full)
        elif name != "0.bias":  # whose gradient is zero but for rounding: batch norm follows
            assert (half - full).norm() < 0.05 * full.norm(), name


def test_training_under_autocast_goes_through_windows_and_updates():
    full, half = (start("sparse", scope="dense:4") for _ in range(2))
    expected = train(*full[:2], 20)
    with bf16():  # backward passes too
        losses = train(*half[:2], 20)
    assert half[2].updates == 2
    assert losses == pytest.approx(expected, rel=0.02)
    assert losses != expected


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 5))


def check_compiled(make, backend):
    """Past two topology updates and their windows, then another batch size: one graph inside windows and one outside."""
    plain, its_optimizer, its_handle = start("sparse", model=make())
    expected = train(plain, its_optimizer, 20)
    model, optimizer, handle = start("sparse", model=make())
    torch._dynamo.reset()
    counters = torch._dynamo.utils.counters
    counters.clear()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    assert train(compiled, optimizer, 20) == pytest.approx(expected, rel=1e-4)
    assert handle.updates == its_handle.updates == 2
    assert 0 < handle.window.length(0) < 8
    assert counters["stats"]["unique_graphs"] == 2
    assert overlap(its_handle.masks, handle.masks) >= 0.995
    x = torch.randn(7, 3, 8, 8)
    torch.testing.assert_close(compiled.eval()(x), model.eval()(x))


@pytest.mark.parametrize("make", [net, mlp])
def test_compiled_models_train_alike(make):
    check_compiled(make, "aot_eager")


@pytest.mark.deep
@pytest.mark.parametrize("make", [net, mlp])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_generated_code_trains_alike(make, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    check_compiled(make, "inductor")


@pytest.mark.filterwarnings("ignore:the weights look trained")
def test_a_pickled_network_forgets_the_masks_it_was_pickled_with():
    model, optimizer, handle = start("sparse")
    train(model, optimizer, 2)
    model = pickle.loads(pickle.dumps(model))
    _, _, handle = start("masked", "static", model, seed=5)
    assert all(execution_of(module) is None for module in model.modules())
    assert {row.execution for row in handle.explain()} == {"masked"}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter))
    twin = net().eval()
    twin.load_state_dict(model.state_dict())
    x = torch.randn(4, 3, 8, 8)
    assert torch.equal(model.eval()(x), twin(x))


def _clip(optimizer, *_):
    nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], 1e-6)


@pytest.mark.parametrize("when", ["before the first step", "later"])
def test_hooks_that_come_later_act_before_the_native_step(when):
    weights = {}
    for execution in ("masked", "sparse"):
        model, optimizer, _ = start(execution)
        if when == "later":
            train(model, optimizer, 2)
        optimizer.register_step_pre_hook(_clip)
        before = model[0].weight.detach().clone()
        train(model, optimizer, 3, first=2)
        weights[execution] = model[0].weight.detach() - before
    torch.testing.assert_close(weights["sparse"], weights["masked"], rtol=1e-3, atol=1e-5)


@pytest.mark.filterwarnings("ignore:the weights look trained")
def test_a_handle_leaves_the_execution_of_others_alone():
    model = nn.Sequential(net(), nn.Linear(5, 5))
    first = start("sparse", model=model[0])
    classes = [type(module) for module in model.modules()]
    optimizer = torch.optim.SGD(model[1].parameters(), lr=0.1)
    second = regrow.sparsify(model[1], optimizer, "static", density=0.5)
    second.detach()
    assert [type(module) for module in model.modules()] == classes
    first[2].detach()
    again = start("sparse", model=model[0])
    first[2].densify()
    assert all(execution_of(layer.module) is not None for layer in again[2].network.layers)
