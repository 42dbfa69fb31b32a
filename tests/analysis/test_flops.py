import pytest

from regrow import models
from regrow.analysis import flops
from regrow.models.cost import cost
from regrow.topology.distribution import erdos_renyi_kernel


def table(name):
    shape = models.info(name).input_shape
    return cost(models.create(name, seed=0), shape)


def erk(count, density):
    shapes = [layer.weight_shape for layer in count.sparsifiable]
    names = [layer.name for layer in count.sparsifiable]
    return dict(zip(names, erdos_renyi_kernel(shapes, density), strict=True))


@pytest.fixture(scope="module")
def resnet():
    return table("resnet50")


@pytest.mark.parametrize(
    ("name", "fraction", "dense_layers"),
    [("vgg16-d", 0.1035, 2), ("wrn-22-8", 0.0848, 3), ("lenet5", 0.1262, 1), ("lenet300", 0.0500, 0)],
)
def test_erk_at_five_percent_keeps_the_published_share_of_macs(name, fraction, dense_layers):
    count = table(name)
    densities = erk(count, 0.05)
    assert flops.mac_fraction(count, densities) == pytest.approx(fraction, abs=5e-5)
    assert sum(density == 1.0 for density in densities.values()) == dense_layers


@pytest.mark.parametrize(("density", "fraction", "dense_layers"), [(0.1, 0.2418, 1), (0.2, 0.4138, 8)])
def test_erk_of_resnet50(resnet, density, fraction, dense_layers):
    densities = erk(resnet, density)
    assert flops.mac_fraction(resnet, densities) == pytest.approx(fraction, abs=5e-5)
    assert sum(d == 1.0 for d in densities.values()) == dense_layers


@pytest.mark.parametrize(("density", "fraction"), [(0.1, 0.1260), (0.2, 0.2231)])
def test_uniform_resnet50_with_a_dense_first_convolution(resnet, density, fraction):
    densities = {layer.name: density for layer in resnet.sparsifiable if layer.name != "conv1"}
    assert flops.mac_fraction(resnet, densities) == pytest.approx(fraction, abs=5e-5)


def test_kept_macs_add_up_and_layers_without_a_density_are_dense():
    count = table("lenet300")
    kept = flops.kept_macs(count, {"fc1": 0.5, "fc2": 0.1})
    assert kept == {"fc1": 117600.0, "fc2": 3000.0, "fc3": 1000.0}
    assert flops.inference_flops(count, {"fc1": 0.5, "fc2": 0.1}) == 2 * sum(kept.values())


@pytest.mark.parametrize(("sparse", "snfs", "rigl"), [(0.4138, 0.61, 0.42), (0.2418, 0.49, 0.24)])
def test_rigls_table_of_training_flops(sparse, snfs, rigl):
    dense = flops.dense_step(1.0)
    assert flops.dense_gradient_step(sparse, 1.0) / dense == pytest.approx(snfs, abs=5e-3)
    # RigL's table rounds 0.2436 and 0.4157 to 0.24 and 0.42 (interval 100 steps).
    assert flops.rigl_step(sparse, 1.0, 100) / dense == pytest.approx(rigl, abs=5e-3)
    assert flops.rigl_step(sparse, 1.0, 100) == pytest.approx((3 * sparse * 100 + 2 * sparse + 1) / 101)


def test_a_growth_window_lies_between_static_and_snfs():
    static, snfs = flops.static_step(0.1), flops.dense_gradient_step(0.1, 1.0)
    assert flops.windowed_step(0.1, 1.0, 66, 540) == pytest.approx(static + (snfs - static) * 66 / 540)
    assert flops.windowed_step(0.1, 1.0, 0, 540) == pytest.approx(static)
    assert flops.windowed_step(0.1, 1.0, 540, 540) == pytest.approx(snfs)
    with pytest.raises(ValueError, match="does not fit"):
        flops.windowed_step(0.1, 1.0, 541, 540)


def test_gradual_pruning_averages_over_steps():
    assert flops.gradual_step([1.0, 0.5, 0.0]) == pytest.approx(1.5)
    assert flops.gradual_step([0.2] * 7) == pytest.approx(flops.static_step(0.2))
    with pytest.raises(ValueError, match="no steps"):
        flops.gradual_step([])
