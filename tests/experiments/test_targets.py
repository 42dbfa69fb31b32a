"""Spot checks of the paper's numbers: a slip of the pen here would be a wrong verdict there."""

import pytest
from scipy import stats

from regrow.experiments import targets
from regrow.experiments.targets import Target


def test_compression():
    lenet300 = [2.36, 2.053, 1.984, 1.99, 1.552, 1.53, 1.447, 1.426]
    assert [t.error for t in targets.COMPRESSION["lenet300"].values()] == lenet300
    assert list(targets.COMPRESSION["lenet300"]) == [1, 1.5, 1.8, 2, 4.4, 5, 8, 8.3]
    lenet5 = [1.403, 1.144, 0.894, 0.83, 0.76, 0.69, 0.645, 0.642]
    assert [t.error for t in targets.COMPRESSION["lenet5"].values()] == lenet5
    assert list(targets.COMPRESSION["lenet5"]) == [0.4, 0.5, 0.9, 1, 2, 5, 8, 9.3]
    assert sum(t.se for t in targets.COMPRESSION["lenet300"].values()) == pytest.approx(0.229)
    assert sum(t.se for t in targets.COMPRESSION["lenet5"].values()) == pytest.approx(0.277)
    dense = targets.DENSE_MNIST
    assert (dense["lenet300"], dense["lenet5"]) == (Target(1.34, 0.011), Target(0.58, 0.01))


def test_competitors():
    for model, count, densities, errors in (("lenet300", 11, 40.5, 25.5), ("lenet5", 10, 31.1, 12.51)):
        points = targets.COMPETITORS[model]
        assert len(points) == count
        assert sum(density for _, density, _ in points) == pytest.approx(densities)
        assert sum(error for _, _, error in points) == pytest.approx(errors)


def test_methods_on_mnist_are_errors_of_the_published_accuracies():
    found = targets.MNIST_METHODS
    assert {name: round(curve[1].error, 4) for name, curve in found.items()} == {
        "dsr": 2.46,
        "sparse-momentum": 2.47,
        "set": 4.2,
        "deep-r": 6.0,
    }
    assert found["sparse-momentum"][5] == Target(1.47, pytest.approx(0.0329309))
    assert found["set"][5].se is None
    assert found["set"][10].error == pytest.approx(1.60843)
    assert [round(t.error, 2) for t in found["deep-r"].values()] == [6.0, 1.79, 1.78, 1.7, 1.94, 1.81]
    assert [round(t.error, 2) for t in found["dsr"].values()] == [2.46, 1.86, 1.8, 1.77, 1.68, 1.56]
    assert [round(t.error, 2) for t in found["sparse-momentum"].values()] == [2.47, 1.8, 1.7, 1.58, 1.47, 1.33]


def test_wrn28_is_in_percent():
    assert [round(t.error, 4) for t in targets.WRN28["sparse-momentum"].values()] == [
        6.386,
        5.676,
        5.424,
        5.3225,
        5.2513,
    ]
    assert [round(t.error, 2) for t in targets.WRN28["dsr"].values()] == [6.41, 5.6, 5.43, 5.34, 5.27]
    assert [round(t.error, 2) for t in targets.WRN28["set"].values()] == [6.72, 5.75, 5.6, 5.45, 5.24]
    assert [round(t.error, 2) for t in targets.WRN28["deep-r"].values()] == [8.59, 7.64, 7.5, 7.2, 7.08]
    assert targets.WRN28["deep-r"][30].se == pytest.approx(0.1)
    assert targets.DENSE_WRN28.error == 5.3


def test_cifar_tables():
    snip = targets.CIFAR_SNIP
    assert [row[0] for row in snip.values()] == [10, 10, 5, 5, 3, 5, 5, 5]
    assert [row[1].error for row in snip.values()] == [12.95, 12.85, 6.49, 6.59, 6.50, 4.57, 4.45, 4.26]
    assert [row[2].error for row in snip.values()] == [14.99, 14.50, 7.27, 7.09, 8.00, 6.63, 6.43, 5.85]
    assert [row[3].error for row in snip.values()] == [14.27, 13.56, 7.00, 6.69, 7.00, 5.62, 5.24, 4.93]
    assert [row[3].se for row in snip.values()] == [0.123, 0.094, 0.054, 0.049, 0.077, 0.056, 0.052, 0.056]
    equal = targets.DENSE_EQUIVALENCE
    assert list(equal) == list(snip)
    assert [row[0] for row in equal.values()] == [50, 35, 10, 5, 5, 30, 25, 20]
    assert [row[1].error for row in equal.values()] == [13.15, 13.00, 6.64, 6.49, 6.46, 4.72, 4.56, 4.40]
    assert [row[2] for row in equal.values()] == [1.31, 1.21, 1.32, 1.36, 1.32, 1.07, 1.07, 1.21]
    assert [row[3] for row in equal.values()] == [3.01, 2.74, 3.85, 3.51, 3.48, 4.59, 4.41, 5.61]


def test_the_abstracts_ranges_follow_from_the_table():
    channels = [row[2] for row in targets.DENSE_EQUIVALENCE.values()]
    flops = [row[3] for row in targets.DENSE_EQUIVALENCE.values()]
    assert (min(flops), max(flops), min(channels), max(channels)) == (2.74, 5.61, 1.07, 1.36)


def test_ablation_is_published_as_differences():
    first, *rest = targets.ABLATION.values()
    published = {
        "lenet300": [0.07, 0.01, 0.11],
        "lenet5": [-0.05, 0.32, 0.13],
        "vgg16-d": [-0.19, 1.54, 1.49],
        "resnet50": [7.29, 3.42, 9.71],
    }
    for model, differences in published.items():
        assert [round(row[model].error - first[model].error, 2) for row in rest] == differences
    assert list(targets.ABLATION) == [
        ("momentum", "momentum"),
        ("momentum", "random"),
        ("none", "momentum"),
        ("none", "random"),
    ]
    assert [row["lenet300"].se for row in targets.ABLATION.values()] == [0.020, 0.022, 0.018, 0.020]
    assert [row["lenet5"].se for row in targets.ABLATION.values()] == [0.021, 0.011, 0.071, 0.013]
    assert [row["vgg16-d"].se for row in targets.ABLATION.values()] == [0.049, 0.040, 0.101, 0.147]


def test_imagenet_is_the_complement_of_top_1_accuracy():
    accuracy = {name: [round(100 - t.error, 1) for t in curve.values()] for name, curve in targets.IMAGENET.items()}
    assert accuracy == {
        "dense": [74.9],
        "fully sparse": [72.3, 73.8],
        "partially dense": [72.3, 74.2],
        "deep-r": [70.2, 71.7],
        "set": [70.4, 72.6],
        "dsr": [71.6, 73.3],
        "tuned": [77.0, 72.9, 74.9, 75.9],
    }


def test_top_5_has_the_settings_of_top_1():
    assert {kind: list(found) for kind, found in targets.IMAGENET_TOP5.items()} == {
        kind: list(curve) for kind, curve in targets.IMAGENET.items()
    }
    assert [list(found.values()) for found in targets.IMAGENET_TOP5.values()] == [
        [92.4], [91.0, 91.8], [91.0, 91.9], [90.0, 90.6], [90.1, 91.2], [90.5, 92.4], [93.5, 91.5, 92.5, 92.9],
    ]  # fmt: skip


def test_features_have_the_layers_of_the_networks_and_p_values_of_one_degree_of_freedom():
    assert {model: [len(means) for means in paper.layers] for model, paper in targets.FEATURES.items()} == {
        "alexnet-s": [5, 5],
        "vgg16-d": [13, 13],
        "wrn-28-2": [24, 24],
    }
    for paper in targets.FEATURES.values():
        assert stats.chi2.sf(paper.statistic, 1) == pytest.approx(paper.p, rel=0.03)
    sums = [[round(sum(means), 4) for means in paper.layers] for paper in targets.FEATURES.values()]
    assert sums == [[0.955, 0.8415], [2.2985, 2.3383], [3.5131, 3.6275]]


@pytest.mark.parametrize(
    ("table", "model", "sums"),
    [
        # Column sums of the published tables in percent: first mean, first SE, second mean, second SE.
        ("MOMENTUM_SENSITIVITY", "vgg16-d", (79.178, 8.495, 77.017, 6.478)),
        ("MOMENTUM_SENSITIVITY", "alexnet-s", (112.476, 0.796, 101.04, 0.807)),
        ("PRUNE_RATE_SENSITIVITY", "vgg16-d", (39.174, 0.346, 39.325, 0.386)),
        ("PRUNE_RATE_SENSITIVITY", "alexnet-s", (87.016, 0.648, 86.576, 0.739)),
    ],
)
def test_sensitivity_tables_by_column_sums(table, model, sums):
    rows = getattr(targets, table)[model].values()
    found = tuple(sum(getattr(row[which], key) for row in rows) for which in (0, 1) for key in ("error", "se"))
    assert found == pytest.approx(sums)
