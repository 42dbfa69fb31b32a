"""Windows of candidates: the exact choice of them, the same masks where all missing weights are candidates, and nothing dense."""

import copy
import io

import pytest
import torch
from torch import nn

import regrow
from regrow.candidates import largest_missing
from regrow.errors import ConfigurationError, StateError, UnsupportedError
from regrow.execution.kernels.compact import ReachedGradient, WholeGradient
from regrow.execution.kernels.pattern import Geometry, SparsePattern
from regrow.marks import Marks, among, positions
from regrow.nn import SparseLinear
from regrow.support import Support
from regrow.topology.select import largest
from tests.support.compact import Run, assert_same

STEPS = 18
SHORT = {"update_every": 6, "window_tolerance": 0.7, "steps": STEPS}
"""Windows of 4 of 6 steps with SGD and Adam."""
ALL = 1e9


def windowed(optimizer="SGD", candidates=1.0, **arguments):
    return Run(optimizer=optimizer, window_candidates=candidates, **{**SHORT, **arguments})


class Bands:
    def __init__(self, dense):
        self.dense = dense

    def band(self, rows, shape):
        assert shape == self.dense.shape
        return self.dense[rows].clone()


@pytest.mark.parametrize("rows", [1, 2, 5, 50])
@pytest.mark.parametrize("seed", range(8))
def test_the_running_choice_is_the_choice_at_once(rows, seed):
    source = torch.Generator().manual_seed(seed)
    gradient = torch.randint(-5, 6, (11, 9), generator=source).float()  # many ties
    mask = torch.rand(11, 9, generator=source) < 0.3
    bands = [slice(i, min(i + rows, 11)) for i in range(0, 11, rows)]
    for count in (0, 1, 7, 30, int((~mask).sum()), 1000):
        found, values = largest_missing(Bands(gradient), Support(Marks(mask.shape, positions(mask))), bands, count)
        expected = positions(largest(gradient.abs(), min(count, int((~mask).sum())), ~mask))
        assert found.tolist() == expected.tolist()
        assert torch.equal(values, gradient.reshape(-1)[expected])


@pytest.mark.parametrize("shape", [(12, 30), (8, 3, 3, 3)], ids=str)
def test_gradients_of_candidates_are_those_of_dense_kernels(shape):
    torch.manual_seed(0)
    geometry = Geometry(kernel=(1, 1, *shape[2:])[-2:])
    x = torch.randn(5, shape[1], *([7, 7] if len(shape) == 4 else []))
    grad = torch.randn(5, shape[0], *([5, 5] if len(shape) == 4 else []))
    present, reach = (Support(Marks(torch.Size(shape), torch.arange(1, 200, step))) for step in (6, 3))
    pattern = SparsePattern(present, geometry)
    some, whole = ReachedGradient(x, grad, pattern, reach), WholeGradient(x, grad, pattern)
    torch.testing.assert_close(some.at(reach), whole.at(reach), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(some.present, whole.present, rtol=1e-4, atol=1e-5)
    rows = slice(0, shape[0])
    assert torch.equal(some.band(rows).reshape(-1)[reach.positions], some.at(reach))
    assert int(some.band(rows).count_nonzero()) <= reach.nnz
    assert torch.equal(some.at(present), some.present)


@pytest.mark.parametrize("optimizer", ["SGD", "plain SGD", "Adam", "AdamW, each alone", "RMSprop"])
@pytest.mark.parametrize(
    "arguments",
    [{}, {"window_stride": 2}, {"momentum": "gradient"}, {"just_pruned": "zero"}, {"density": 0.7}],
    ids=str,
)
def test_all_missing_weights_as_candidates_are_the_exact_window(optimizer, arguments):
    some, exact = (windowed(optimizer, candidates, **arguments).run(STEPS) for candidates in (ALL, 0.0))
    assert some.handle.updates == 2
    assert_same(some, exact)


@pytest.mark.parametrize("method", ["snfs-erk"])
def test_the_same_for_other_methods_and_in_bands(monkeypatch, method):
    monkeypatch.setattr("regrow.execution.kernels.gradient._BLOCK", 300)
    assert_same(*(windowed(candidates=candidates, method=method).run(STEPS) for candidates in (ALL, 0.0)))


def test_accumulated_clipped_scaled_and_autocast_gradients():
    def train(candidates):
        run = windowed("Adam", candidates)
        while run.handle.step < STEPS:
            run.optimizer.zero_grad()
            for part in range(3):
                with torch.autocast("cpu", torch.bfloat16, enabled=part == 1):
                    loss = run.loss(10 * run.handle.step + part) * 8
                loss.backward()
            for parameter in run.model.parameters():
                parameter.grad /= 8
            nn.utils.clip_grad_value_(run.model.parameters(), 0.05)
            run.optimizer.step()
        return run

    assert_same(train(ALL), train(0.0))


@pytest.mark.parametrize("optimizer", ["SGD", "plain SGD", "Adam"])
@pytest.mark.parametrize("tolerance", [0.7, 0.0], ids=["short", "always open"])
@pytest.mark.parametrize("growth", [{}, {"global_growth": True}, {"redistribution": "none"}], ids=str)
def test_only_candidates_grow_and_the_budget_is_exact(optimizer, tolerance, growth):
    run = windowed(optimizer, window_tolerance=tolerance, **growth)
    budget, counted = run.handle.nonzeros, 0
    while run.handle.step < STEPS:
        reach = {sparse.name: sparse.moments.reach for sparse in run.handle.parameters}
        before = run.handle.updates
        run.step()
        assert run.handle.nonzeros == budget
        if run.handle.updates > before:
            counted += 1
            for sparse in run.handle.parameters:
                assert bool(among(reach[sparse.name].positions, sparse.support.positions).all())
                assert sparse.moments.reach is None
                assert reach[sparse.name].nnz < sparse.shape.numel()
    assert counted == 2


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
@pytest.mark.parametrize("at", [2, 3, 5, 9], ids=str)
def test_a_run_that_is_resumed_inside_a_window_ends_as_without(optimizer, at):
    whole, half = windowed(optimizer).run(STEPS), windowed(optimizer).run(at)
    assert (half.handle.parameters[0].moments.reach is None) == (at == 2)
    saved = io.BytesIO()
    torch.save((half.model.state_dict(), half.optimizer.state_dict(), half.handle.state_dict()), saved)
    saved.seek(0)
    weights, state, masks = torch.load(saved, weights_only=True)
    resumed = windowed(optimizer)
    resumed.model.load_state_dict(weights)
    resumed.optimizer.load_state_dict(state)
    resumed.handle.load_state_dict(masks)
    assert_same(resumed.run(STEPS), whole)


def test_a_copy_inside_a_window_trains_alike():
    run = windowed().run(4)
    run.optimizer.zero_grad()
    twin = copy.copy(run)
    twin.model, twin.optimizer, twin.handle = copy.deepcopy((run.model, run.optimizer, run.handle))
    twin.handle.model  # noqa: B018  (else its first pass is dense)
    assert twin.handle.parameters[0].moments.reach is not None
    assert_same(run.run(STEPS), twin.run(STEPS))


def test_damaged_candidates_are_refused():
    run = windowed().run(4)
    state = run.handle.state_dict()
    name = run.handle.parameters[0].name
    kept = state["parameters"][name]
    damage = {
        "first": kept["first"][:-1],
        "candidates": kept["candidates"].int(),
        "second": kept["first"].view(-1, 1),
    }
    for key, tensor in damage.items():
        wrong, other = {**state, "parameters": {**state["parameters"], name: {**kept, key: tensor}}}, windowed()
        with pytest.raises(StateError, match="parameters of the saved state"):
            other.handle.load_state_dict(wrong)
    other = windowed(candidates=2.0)
    with pytest.raises(StateError, match="window_candidates"):
        other.handle.load_state_dict(state)


def test_masks_from_outside_begin_the_window_anew():
    run = windowed().run(4)
    for sparse in run.handle.parameters:
        sparse.parameter.data[sparse.parameter.data.abs() < 0.05] = 0
    run.handle.masks_from_zeros()
    assert all(sparse.moments.reach is None for sparse in run.handle.parameters)
    run.step()
    for sparse in run.handle.parameters:
        assert bool(among(sparse.moments.reach.positions, sparse.support.positions).all())
    budget = run.handle.nonzeros
    run.run(STEPS)
    assert run.handle.nonzeros == budget


def test_dense_parameters_inside_a_window_have_no_candidates():
    run = windowed().run(4)
    budget = run.handle.nonzeros
    run.handle.densify()
    run.run(7)
    assert run.handle.updates == 1
    run.handle.execute("sparse")
    run.run(STEPS)
    assert (run.handle.updates, run.handle.nonzeros) == (2, budget)


def test_frozen_and_unused_layers():
    run = windowed().run(1)
    last = list(run.model.parameters())[-2]
    last.requires_grad_(False)
    budget = run.handle.nonzeros
    run.run(STEPS)
    assert run.handle.nonzeros == budget


def test_memory_is_predicted_and_counted():
    run, exact = windowed(candidates=2.0), windowed(candidates=0.0)
    size = sum(sparse.shape.numel() for sparse in run.handle.parameters)
    assert run.handle.memory().window < exact.handle.memory().window == 4 * size
    assert "growth window" in str(run.handle.memory())
    run.run(3)
    assert run.handle.memory().window == 0, "it is open"
    kept = sum(sparse.moments.first.nbytes + sparse.moments.reach.nbytes for sparse in run.handle.parameters)
    assert run.handle.memory().sum("evidence") >= kept
    run.run(7)
    predicted = run.handle.memory().window
    run.run(9)
    kept = sum(sparse.moments.first.nbytes + sparse.moments.reach.nbytes for sparse in run.handle.parameters)
    assert kept == pytest.approx(predicted, rel=0.2), "shares move between prediction and window"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"storage": "dense"}, "say storage='compact'"),
        ({"method": "rigl"}, "'rigl' grows no weights by momentum"),
        ({"method": "static"}, "'static' grows no weights by momentum"),
        ({"growth": "random"}, "leave window_candidates out"),
        ({"candidates": 0.5}, "0 or at least 1, got 0.5: 4 keeps four candidates"),
        ({"candidates": -1}, "0 or at least 1"),
        ({"candidates": float("nan")}, "0 or at least 1"),
        ({"candidates": "4"}, "0 or at least 1, got 4"),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else "",
)
def test_candidates_without_a_meaning_are_refused(arguments, said):
    with pytest.raises(ConfigurationError, match=said):
        windowed(**arguments)


def test_a_layer_too_large_for_dense_momentum_is_refused_with_the_remedy():
    layer = nn.Sequential(SparseLinear(50_000, 50_000, density=1e-7))
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    arguments = {"steps": 10, "update_every": 2, "execution": "sparse", "storage": "compact"}
    with pytest.raises(UnsupportedError, match=r"layer 0 has 2,500,000,000 positions.*window_candidates=4"):
        regrow.sparsify(layer, optimizer, **arguments)
    handle = regrow.sparsify(layer, optimizer, window_candidates=4, **arguments)
    assert handle.memory().window < 1_000_000
