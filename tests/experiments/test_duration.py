"""Cost estimates: proportional to the work, never below the overhead."""

import pytest

from regrow.experiments.catalogue import find
from regrow.experiments.duration import estimate, measured_rate
from regrow.models.cost import cost


def test_work_over_rate():
    from regrow import models

    cells = find("mnist-compression").chosen("lenet5", [0.05], 10, ["sparse momentum"])
    macs = cost(models.create("lenet5", seed=0), (1, 28, 28)).macs
    assert estimate(cells, seeds=3, rate=1e9) == pytest.approx(3 * 3 * macs * 54_000 * 10 / 1e9)


def test_small_networks_are_bound_by_their_steps():
    cells = find("mnist-compression").chosen("lenet300", [0.05], 10, ["sparse momentum"])
    assert estimate(cells, seeds=2, rate=1e15) == pytest.approx(2 * 540 * 10 * 0.001)


def test_training_on_the_validation_images_counts():
    cells = find("cifar-wrn28").chosen(None, [1.0], 1)
    assert estimate(cells, 1, 1e9) / (3 * 50_000 / 1e9) == pytest.approx(cost_of("wrn-28-2"), rel=1e-6)


def test_short_runs_count_as_far_as_they_go():
    cells = [cell for cell in find("cost-redistribution").cells() if cell.model == "vgg16-d"]
    assert {cell.config.max_steps for cell in cells} == {301}
    expected = len(cells) * 3 * cost_of("vgg16-d") * 301 * 32 / 1e9
    assert estimate(cells, 1, 1e9) == pytest.approx(expected, rel=1e-6)


def cost_of(name):
    from regrow import models

    return cost(models.create(name, seed=0), (3, 32, 32)).macs


def test_the_rate_is_measured():
    assert measured_rate() > 1e6
