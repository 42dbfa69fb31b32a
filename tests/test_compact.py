"""Compact storage: the same training as with dense storage, to the last bit, in memory for present weights only."""

import copy
import io
import warnings

import pytest
import torch
from torch import Tensor, nn

import regrow
from regrow import testing
from regrow.errors import ConfigurationError, ExecutionWarning, StateError, UnsupportedError
from regrow.methods import METHODS, build
from regrow.storage import _dense_need

STEPS = 12
OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "plain SGD": lambda p: torch.optim.SGD(p, lr=0.1, maximize=True),
    "Adam": lambda p: torch.optim.Adam(p, lr=1e-2, amsgrad=True, weight_decay=1e-3),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-2),
    "AdamW, each alone": lambda p: torch.optim.AdamW(p, lr=torch.tensor(1e-2), foreach=False, maximize=True),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=1e-3, momentum=0.5, centered=True, weight_decay=1e-3),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-2, lr_decay=0.1, initial_accumulator_value=0.1),
    "Rprop": lambda p: torch.optim.Rprop(p, lr=1e-3),
}
WITH_DENSE_PARTS = {name for name, make in METHODS.items() if _dense_need(make()) is not None}


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = (
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 12, 3, stride=2, groups=2),
        nn.ReLU(),
        nn.Flatten(),
    )
    return nn.Sequential(*layers, nn.Linear(108, 40), nn.ReLU(), nn.Linear(40, 10))


def batch(step: int) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(step)
    return torch.randn(6, 3, 8, 8, generator=source), torch.randint(0, 10, (6,), generator=source)


class Run:
    def __init__(self, storage="compact", method="sparse-momentum", optimizer="SGD", density=0.2, **arguments):
        self.model = network()
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())
        calibrations = {"loss": lambda: self.loss(0), "input": batch(0)[0], "batches": [batch(0)], None: None}
        arguments = {"steps": STEPS, "update_every": 3, "execution": "sparse", **arguments}
        kind = build(method, {k: v for k, v in arguments.items() if k in ("growth", "grown_momentum", "just_pruned")})
        self.handle = regrow.sparsify(
            self.model,
            self.optimizer,
            method,
            density=density,
            storage=storage,
            calibration=calibrations[kind.calibration],
            **arguments,
        )

    def loss(self, step):
        inputs, targets = batch(step)
        return nn.functional.cross_entropy(self.model(inputs), targets)

    def step(self):
        self.optimizer.zero_grad()
        self.loss(self.handle.step).backward()
        self.optimizer.step()

    def run(self, steps=STEPS):
        while self.handle.step < steps:
            self.step()
        return self

    def tensors(self):
        """Weights, masks, gradients and optimizer state, those of present weights in both storages."""
        found = {f"model.{name}": tensor.clone() for name, tensor in self.model.state_dict().items()}
        found |= {f"mask.{name}": mask.clone() for name, mask in self.handle.masks.items()}
        owners = {sparse.parameter: sparse for sparse in self.handle.parameters}
        for index, parameter in enumerate(self.model.parameters()):
            slots = {"grad": parameter.grad, **self.optimizer.state.get(parameter, {})}
            for name, slot in slots.items():
                if isinstance(slot, Tensor):
                    dense = parameter in owners and slot.dim() and slot.shape == owners[parameter].shape
                    present = slot.reshape(-1)[owners[parameter].support.positions.long()] if dense else slot
                    found[f"{index}.{name}"] = present.clone()
        return found


def assert_same(one: Run, two: Run) -> None:
    a, b = one.tensors(), two.tensors()
    assert a.keys() == b.keys()
    assert not [name for name in a if not torch.equal(a[name], b[name])]
    assert one.handle.journal == two.handle.journal


@pytest.mark.parametrize("method", sorted(set(METHODS) - WITH_DENSE_PARTS))
def test_every_method_trains_as_with_dense_storage(method):
    density = None if build(method, {}).free_of_density else 0.2
    every = 1 if method == "dsr" else 3
    compact, dense = (
        Run(storage, method, density=density, update_every=every).run() for storage in ("compact", "dense")
    )
    assert_same(compact, dense)
    assert all(s.parameter.shape == (s.support.nnz,) == s.parameter.grad.shape for s in compact.handle.parameters)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("method", ["sparse-momentum", "rigl", "set"])
def test_every_optimizer_trains_as_with_dense_storage(optimizer, method):
    assert_same(*(Run(storage, method, optimizer).run() for storage in ("compact", "dense")))


@pytest.mark.parametrize(
    "arguments",
    [
        {"window_tolerance": 0.0},
        {"window_stride": 2},
        {"momentum": "gradient"},
        {"native_step": False},
        {"growth": "gradient"},
        {"growth": "random"},
        {"grown_momentum": "zero", "just_pruned": "zero"},
        {"density": 0.7},
    ],
    ids=str,
)
@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_arguments_mean_the_same(arguments, optimizer):
    assert_same(*(Run(storage, optimizer=optimizer, **arguments).run() for storage in ("compact", "dense")))


def test_bands_do_not_change_the_choice(monkeypatch):
    monkeypatch.setattr("regrow.execution.kernels.gradient._BLOCK", 300)
    for method in ("sparse-momentum", "rigl", "granet", "snfs-erk"):
        assert_same(*(Run(storage, method).run() for storage in ("compact", "dense")))


def test_own_criteria_are_asked_band_by_band(monkeypatch):
    monkeypatch.setattr("regrow.execution.kernels.gradient._BLOCK", 300)

    @regrow.needs("momentum")
    def by_unit(layer):
        return layer.momentum.abs() / (
            1 + layer.weight.abs().flatten(1).sum(1).reshape(-1, *[1] * (layer.weight.dim() - 1))
        )

    assert_same(*(Run(storage, prune=by_unit, grow=by_unit).run() for storage in ("compact", "dense")))


@pytest.mark.parametrize("method", sorted(WITH_DENSE_PARTS))
def test_methods_with_dense_parts_are_refused_by_name(method):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    density = None if build(method, {}).free_of_density else 0.2
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(UnsupportedError, match=f"method '{method}' .*leave storage at 'dense'"):
        regrow.sparsify(
            model,
            optimizer,
            method,
            density=density,
            steps=10,
            execution="sparse",
            storage="compact",
            samples=9,
            calibration=[],
        )
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"execution": "masked"}, "execution='sparse'"),
        ({"execution": "auto"}, "execution='sparse'"),
        ({"storage": "sparse"}, "compact, dense"),
        ({"costs": "measured"}, "costs=<example input>"),
        ({"growth": "momentum-neuron"}, "output unit"),
        ({"redistribute": lambda layer: 1.0}, "per_weight"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else str(value),
)
def test_what_cannot_be_compact_is_refused_with_the_remedy(arguments, said):
    with pytest.raises((ConfigurationError, UnsupportedError), match=said):
        Run(**arguments)


def test_layers_without_kernels_are_refused_by_name():
    model = nn.Sequential(nn.Linear(4, 4), nn.Bilinear(4, 4, 2))
    model[1].forward = lambda x: x
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(UnsupportedError, match=r"layer 1 cannot be stored compact.*scope=Scope\(dense=\('1',\)\)"):
        regrow.sparsify(model, optimizer, "static", density=0.5, execution="sparse", storage="compact")


# ---------------------------------------------------------------------------------------------------- around the step


def test_accumulated_clipped_and_scaled_gradients():
    def train(storage):
        run = Run(storage, "sparse-momentum", "Adam")
        while run.handle.step < STEPS:
            run.optimizer.zero_grad()
            for part in range(3):
                (run.loss(10 * run.handle.step + part) * 8).backward()
            for parameter in run.model.parameters():
                parameter.grad /= 8
            nn.utils.clip_grad_value_(run.model.parameters(), 0.05)
            run.optimizer.step()
        return run

    assert_same(train("compact"), train("dense"))


def test_clipping_by_norm_sees_present_weights_only():
    norms = {}
    for storage in ("compact", "dense"):
        run = Run(storage)
        run.loss(0).backward()
        norms[storage] = float(nn.utils.clip_grad_norm_(run.model.parameters(), 1.0))
    assert norms["compact"] == pytest.approx(norms["dense"], rel=1e-6)


def test_a_layer_used_twice_in_a_pass():
    def train(storage):
        torch.manual_seed(0)
        layer = nn.Linear(30, 30)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
        handle = regrow.sparsify(
            layer, optimizer, density=0.2, steps=12, update_every=3, execution="sparse", storage=storage
        )
        source = torch.Generator().manual_seed(1)
        for _ in range(12):
            optimizer.zero_grad()
            layer(layer(torch.randn(5, 30, generator=source)).relu()).square().mean().backward()
            optimizer.step()
        return layer.state_dict()["weight"], handle.masks

    (one, ours), (two, theirs) = train("compact"), train("dense")
    assert torch.equal(one, two)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_gradients_that_are_never_accumulated_are_no_evidence():
    def train(storage, looks):
        run = Run(storage, "rigl")
        while run.handle.step < STEPS:
            if looks:
                torch.autograd.grad(run.loss(99), [run.model[0].bias])
            run.step()
        return run

    looked, plain = train("compact", True), train("compact", False)
    assert_same(looked, plain)
    assert_same(looked, train("dense", False))


def test_loss_scaling_sees_an_overflow_at_missing_weights():
    def train(storage):
        torch.manual_seed(0)
        layer = nn.Linear(6, 3)
        layer.weight.data[:, 0] = 0
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        arguments = {"steps": 9, "update_every": 2, "start": "zeros", "execution": "sparse", "storage": storage}
        handle = regrow.sparsify(layer, optimizer, "rigl", **arguments)
        scaler, scales = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1000), []
        for number in range(5):
            optimizer.zero_grad()
            inputs = torch.ones(2, 6)
            inputs[:, 0] = 3e38 if number == 2 else 1.0
            scaler.scale(layer(inputs).square().mean()).backward()
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
        return scales, layer.state_dict()["weight"], handle.step

    ours, theirs = train("compact"), train("dense")
    assert ours[0] == theirs[0] == [4.0, 4.0, 2.0, 2.0, 2.0]
    assert torch.equal(ours[1], theirs[1])
    assert ours[2] == theirs[2] == 4


def test_autocast():
    def train(storage):
        run = Run(storage)
        while run.handle.step < STEPS:
            run.optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = run.loss(run.handle.step)
            loss.backward()
            run.optimizer.step()
        return run

    assert_same(train("compact"), train("dense"))


def test_a_graph_older_than_an_update_is_refused():
    run = Run(update_every=1)
    run.step()
    kept = run.loss(1)
    run.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        kept.backward()
    run.step()  # the failed pass leaves nothing behind


# ---------------------------------------------------------------------------------------------------- states and copies


def test_weights_are_readable_and_load_in_plain_torch():
    run = Run().run()
    plain = network()
    plain.load_state_dict(run.model.state_dict())
    inputs, _ = batch(0)
    run.model.eval()
    torch.testing.assert_close(plain(inputs), run.model(inputs), rtol=1e-4, atol=1e-5)
    for layer, twin in zip(run.model, plain, strict=True):
        if hasattr(twin, "weight"):
            assert torch.equal(layer.weight, twin.weight)
            assert layer.weight.shape == twin.weight.shape
    assert str(run.model) == str(plain)


@pytest.mark.parametrize("form", ["dense", "compact"])
@pytest.mark.parametrize("order", ["model first", "handle first"])
@pytest.mark.parametrize("method", ["sparse-momentum", "rigl", "set"])
def test_a_resumed_run_ends_as_one_without_interruption(method, order, form):
    whole, half = Run(method=method).run(), Run(method=method).run(7)
    if form == "compact":
        with regrow.compact_form():
            weights = half.model.state_dict()
    else:
        weights = half.model.state_dict()
    saved = io.BytesIO()
    torch.save((weights, half.optimizer.state_dict(), half.handle.state_dict()), saved)
    saved.seek(0)
    weights, state, masks = torch.load(saved, weights_only=True)
    resumed = Run(method=method)
    resumed.optimizer.load_state_dict(state)
    if order == "handle first":
        resumed.handle.load_state_dict(masks)
    resumed.model.load_state_dict(weights)
    if order == "model first":
        resumed.handle.load_state_dict(masks)
    assert_same(resumed.run(), whole)


def test_the_compact_form_holds_present_weights_only():
    run = Run().run(4)
    with regrow.compact_form():
        state = run.model.state_dict()
    assert sum(t.numel() for name, t in state.items() if name.endswith("values")) == run.handle.nonzeros
    assert not any(name.endswith("weight") for name in state)


def test_damaged_compact_forms_are_refused():
    run = Run().run(4)
    with regrow.compact_form():
        state = run.model.state_dict()
    damage = {
        "5.weight.columns": lambda t: t.flip(0),
        "5.weight.rows": lambda t: t[:-1],
        "5.weight.shape": lambda t: t + 1,
        "5.weight.values": lambda t: t[1:],
    }
    for key, change in damage.items():
        with pytest.raises(StateError, match=r"5\.weight"):
            run.model.load_state_dict({**state, key: change(state[key])})


def test_weights_of_other_masks_are_refused_at_the_next_step():
    run, other = Run(), Run(seed=1)
    run.model.load_state_dict(other.model.state_dict())
    with pytest.warns(ExecutionWarning), pytest.raises(StateError, match="lie outside its mask"):
        run.step()


def test_states_of_the_other_storage_are_refused():
    with pytest.raises(StateError, match="storage"):
        Run().handle.load_state_dict(Run("dense").handle.state_dict())


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)], ids=str)
def test_copies_train_on_apart_and_alike(order):
    run = Run().run(5)
    run.optimizer.zero_grad()  # gradients are not copied
    parts = (run.model, run.optimizer, run.handle)
    copied = dict(zip(order, copy.deepcopy([parts[i] for i in order]), strict=True))
    twin = copy.copy(run)
    twin.model, twin.optimizer, twin.handle = copied[0], copied[1], copied[2]
    twin.handle.model  # noqa: B018  (else its first pass is dense)
    assert_same(run, twin)
    twin.run()
    assert run.handle.step == 5
    assert_same(run.run(), twin)


def test_a_lone_copy_is_a_dense_model_for_averages():
    run = Run().run(4)
    averaged = torch.optim.swa_utils.AveragedModel(run.model)
    for _ in range(4):
        run.step()
        averaged.update_parameters(copy.deepcopy(run.model))
    run.handle.mask_(averaged)
    weights = dict(averaged.module.named_parameters())
    for name, mask in run.handle.masks.items():
        weight = weights[f"{name}.weight"]
        assert weight.shape == mask.shape
        assert not bool((weight[~mask] != 0).any())


def test_densify_and_detach_give_the_dense_parameter_back():
    run, dense = Run().run(5), Run("dense").run(5)
    parameters = list(run.model.parameters())
    run.handle.densify()
    assert_same(run, dense)
    assert all(a is b for a, b in zip(run.model.parameters(), parameters, strict=True))
    assert [p.shape for p in parameters] == [p.shape for p in dense.model.parameters()]
    run.handle.execute("sparse")
    assert_same(run.run(), dense.run())
    run.handle.detach()
    assert [type(m) for m in run.model] == [type(m) for m in network()]
    run.loss(0).backward()
    assert all(p.grad.shape == p.shape for p in run.model.parameters())


def test_masks_from_zeros():
    runs = [Run(storage).run(5) for storage in ("compact", "dense")]
    for run in runs:
        for sparse in run.handle.parameters:
            sparse.parameter.data[sparse.parameter.data.abs() < 0.05] = 0
        run.handle.masks_from_zeros()
        run.run()
    assert_same(*runs)


def test_pickled_networks_compute_the_same():
    run = Run().run(4)
    saved = io.BytesIO()
    torch.save(run.model, saved)
    saved.seek(0)
    loaded = torch.load(saved, weights_only=False)
    torch.testing.assert_close(loaded(batch(0)[0]), run.model(batch(0)[0]), rtol=1e-4, atol=1e-5)


def test_nothing_dense_is_left_in_a_handle_outside_windows():
    run = Run(method="set", density=0.05).run(4)
    sizes = {sparse.name: sparse.shape.numel() for sparse in run.handle.parameters}
    memory = run.handle.memory()
    for row in memory:
        if row.sparse:
            assert row.weights == row.gradients == 4 * row.present
            assert row.masks < 4 * sizes[f"{row.layer}.weight"] * 0.2 + 8 * (row.shape[0] + 1)
            assert row.evidence == 0


def test_compiled_models():
    def train(storage):
        torch._dynamo.reset()
        run = Run(storage)
        compiled = torch.compile(run.model, backend="eager")
        while run.handle.step < 6:
            run.optimizer.zero_grad()
            inputs, targets = batch(run.handle.step)
            nn.functional.cross_entropy(compiled(inputs), targets).backward()
            run.optimizer.step()
        return run

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one, two = train("compact"), train("dense")
    torch.testing.assert_close(one.model[0].weight, two.model[0].weight)


def test_flops_are_counted():
    from torch.utils.flop_counter import FlopCounterMode

    counts = []
    for storage in ("compact", "dense"):
        run = Run(storage)
        with FlopCounterMode(display=False) as counter:
            run.loss(0).backward()
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1]


@pytest.mark.parametrize(
    "method",
    [
        method if method in ("sparse-momentum", "set") else pytest.param(method, marks=pytest.mark.deep)
        for method in sorted(set(METHODS) - WITH_DENSE_PARTS)
    ],
)
def test_the_conformance_suite(method):
    testing.check_method(method, storage="compact")


def test_shipped_networks_are_those_of_dense_storage(tmp_path):
    inputs, outputs, files = batch(0)[0], [], []
    for storage in ("compact", "dense"):
        run = Run(storage).run(4)
        run.model.eval()
        regrow.save(tmp_path / f"{storage}.safetensors", run.handle)
        files.append((tmp_path / f"{storage}.safetensors").stat().st_size)
        outputs.append(run.handle.freeze(inputs)(inputs))
    assert torch.equal(*outputs)
    assert files[0] == files[1]
