"""Layer densities and exact counts."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regrow.errors import ConfigurationError
from regrow.topology.distribution import (
    budget,
    erdos_renyi,
    erdos_renyi_kernel,
    exact_counts,
    layer_densities,
    reachable,
    refuse_contradiction,
    uniform,
)
from tests.support.examples import examples

LENET_300 = [(300, 784), (100, 300), (10, 100)]
LENET_5 = [(20, 1, 5, 5), (50, 20, 5, 5), (500, 800), (10, 500)]
VGG16 = [
    (64, 3, 3, 3), (64, 64, 3, 3), (128, 64, 3, 3), (128, 128, 3, 3), (256, 128, 3, 3), *[(256, 256, 3, 3)] * 2,
    (512, 256, 3, 3), *[(512, 512, 3, 3)] * 5, (512, 512), (512, 512), (10, 512),
]  # fmt: skip


def resnet50():
    shapes, width = [(64, 3, 7, 7)], 64
    for planes, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            shapes += [(planes, width, 1, 1), (planes, planes, 3, 3), (4 * planes, planes, 1, 1)]
            if block == 0:
                shapes.append((4 * planes, width, 1, 1))
            width = 4 * planes
    return [*shapes, (1000, 2048)]


@pytest.mark.parametrize("densities", [{"a": 0.5, "b": 0.5}, {"*": 0.02}])
def test_explicit_densities_of_all_layers_must_make_the_density(densities):
    shapes = [(30, 40), (10, 30)]
    found = layer_densities(densities, ["a", "b"], shapes, 0.1)
    with pytest.raises(ConfigurationError, match=r"make 0\.\d+ of all weights, not the density 0\.1"):
        refuse_contradiction(found, shapes, 0.1)


def test_explicit_densities_may_be_rounded():
    exact = erdos_renyi_kernel(LENET_300, 0.05)
    named = {name: round(density, 4) for name, density in zip("abc", exact, strict=True)}
    refuse_contradiction(layer_densities(named, ["a", "b", "c"], LENET_300, 0.05), LENET_300, 0.05)


@pytest.mark.parametrize(
    ("shapes", "expected"), [(LENET_300, [0.0385, 0.1113, 0.9185]), (LENET_5, [0.7261, 0.0375, 0.0381, 1.0])]
)
def test_published_densities(shapes, expected):
    assert [round(d, 4) for d in erdos_renyi_kernel(shapes, 0.05)] == expected


@pytest.mark.parametrize(
    ("shapes", "density", "eps", "dense"),
    [
        (resnet50(), 0.10, 48.787, 1),
        (resnet50(), 0.20, 99.562, 8),
        (VGG16, 0.05, 75.576, 2),
        (LENET_5, 0.05, 11.712, 1),
        (LENET_300, 0.05, 8.350, 0),
    ],
)
def test_published_scale_and_number_of_dense_layers(shapes, density, eps, dense):
    densities = erdos_renyi_kernel(shapes, density)
    assert sum(d == 1.0 for d in densities) == dense
    found = [d * math.prod(s) / sum(s) for d, s in zip(densities, shapes, strict=True) if d < 1]
    assert found == pytest.approx([eps] * len(found), rel=1e-4)


def test_erdos_renyi_ignores_the_kernel():
    plain, convolutions = erdos_renyi([(30, 20), (40, 30)], 0.2), erdos_renyi([(30, 20, 3, 3), (40, 30, 3, 3)], 0.2)
    assert plain == pytest.approx(convolutions)
    assert plain[0] / plain[1] == pytest.approx((50 / 600) / (70 / 1200))


shapes_strategy = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=6)


@examples("distribution")
@given(shapes_strategy, st.floats(0.01, 1.0), st.sampled_from([uniform, erdos_renyi, erdos_renyi_kernel]))
def test_counts_are_exact_and_within_layers(shapes, density, distribution):
    sizes = [math.prod(s) for s in shapes]
    densities = distribution(shapes, density)
    assert all(0 < d <= 1 + 1e-9 for d in densities)
    assert sum(d * n for d, n in zip(densities, sizes, strict=True)) == pytest.approx(density * sum(sizes))
    total = max(len(sizes), budget(density, sizes))
    counts = exact_counts(densities, shapes, total)
    assert sum(counts) == total
    assert all(1 <= c <= n for c, n in zip(counts, sizes, strict=True))
    lower = reachable(exact_counts(distribution(shapes, density / 2), shapes, max(len(sizes), total // 2)), counts)
    assert sum(lower) == max(len(sizes), total // 2)
    assert all(1 <= a <= b for a, b in zip(lower, counts, strict=True))


def test_every_layer_gets_one_weight_taken_from_the_largest():
    assert exact_counts([0.01] * 3, [(100, 100), (2, 2), (3, 3)], 100) == [98, 1, 1]


def test_a_budget_that_does_not_fit_is_refused():
    with pytest.raises(ConfigurationError, match="every layer needs at least one weight"):
        exact_counts([0.1, 0.1], [(2, 2), (2, 2)], 1)
    with pytest.raises(ConfigurationError, match="does not fit"):
        exact_counts([1.0], [(2, 2)], 5)


def test_distributions_by_name_function_and_map():
    names, shapes = ["conv", "head"], [(10, 10), (10, 30)]
    assert layer_densities("uniform", names, shapes, 0.1) == [0.1, 0.1]
    assert layer_densities(lambda s, d: [d, 2 * d], names, shapes, 0.1) == [0.1, 0.2]
    assert layer_densities({"co*": 0.4}, names, shapes, 0.25) == pytest.approx([0.4, 0.2])
    with pytest.raises(ConfigurationError, match="did you mean 'erk'"):
        layer_densities("erkk", names, shapes, 0.1)
    with pytest.raises(ConfigurationError, match="did you mean 'head'"):
        layer_densities({"heads": 0.4}, names, shapes, 0.1)
    with pytest.raises(ConfigurationError, match=r"must lie in \(0, 1\]"):
        layer_densities({"head": 1.4}, names, shapes, 0.1)
    with pytest.raises(ConfigurationError, match="leave density"):
        layer_densities({"head": 1.0}, names, shapes, 0.1)
