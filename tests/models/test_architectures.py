"""Every row and every total of the published layer tables."""

from functools import cache

import pytest
import torch

from regrow import models
from regrow.models.cost import LayerCost, ModelCost, cost
from tests.models.tables import TABLES, TOTALS


@cache
def cost_of(name: str) -> ModelCost:
    return cost(models.create(name, seed=0), models.info(name).input_shape)


def norm_params(count: ModelCost) -> int:
    return sum(layer.extra for layer in count.layers if layer.kind == "norm")


def shape_text(shape: tuple[int, ...] | None) -> str:
    return "x".join(map(str, shape or ()))


def row(layer: LayerCost) -> list[str]:
    counts = (layer.weights, layer.bias, layer.macs)
    return [layer.name, shape_text(layer.weight_shape), shape_text(layer.output_shape), *map(str, counts)]


ROWS = [(name, line.split()) for name, table in TABLES.items() for line in table.strip().splitlines()]
# Tables that list only the layers that differ from another network.
ROWS += [("alexnet-b", line) for name, line in ROWS if name == "alexnet-s" and line[0].startswith("conv")]
ROWS += [("vgg16-like", line) for name, line in ROWS if name == "vgg16-d" and line[0].startswith("conv")]
ROWS += [("vgg16-like", ["fc1", "512x512", "512", "262144", "512", "262144"])]
ROWS += [("vgg16-like", ["fc2", "10x512", "10", "5120", "10", "5120"])]


@pytest.mark.parametrize(("name", "expected"), ROWS, ids=lambda value: value if isinstance(value, str) else value[0])
def test_layer(name, expected):
    actual = row(cost_of(name)[expected[0]])
    assert [a for a, e in zip(actual, expected, strict=True) if e != "-"] == [e for e in expected if e != "-"]


@pytest.mark.parametrize("name", TOTALS)
def test_totals(name):
    count = cost_of(name)
    totals = (len(count.sparsifiable), count.weights, count.biases, norm_params(count), count.params, count.macs)
    assert totals == TOTALS[name]
    assert count.flops == 2 * count.macs
    assert all(layer.calls and layer.macs is not None for layer in count.layers)


@pytest.mark.parametrize(
    "name", ["lenet300", "lenet5", "alexnet-s", "vgg16-d", "vgg16-c", "wrn-28-2", "wrn-16-8", "resnet50"]
)
def test_full_tables_name_every_layer_in_order(name):
    # Within a wide residual block the table lists the shortcut last, as the module does.
    listed = [line[0] for table, line in ROWS if table == name]
    built = [layer.name for layer in cost_of(name).sparsifiable]
    assert built == listed


def test_dsr_lenet_has_batch_norm_and_no_bias():
    count = cost_of("lenet300-bn")
    assert (count.weights, count.biases, norm_params(count)) == (266_200, 0, 820)
    assert [layer.name for layer in count.layers][-1] == "bn3"


def test_partially_dense_settings():
    wide = cost_of("wrn-28-2")
    dense = [layer for layer in wide.sparsifiable if layer.name in ("conv1", "fc") or "shortcut" in layer.name]
    assert sum(layer.weights for layer in dense) == 12_464
    assert wide.weights - 12_464 == 1_451_520
    residual = cost_of("resnet50")
    dense = [layer for layer in residual.sparsifiable if layer.name == "conv1" or "downsample" in layer.name]
    assert sum(layer.weights for layer in dense) == 2_778_304


@pytest.mark.parametrize("record", [r for r in models.list_models() if not r.tokens], ids=lambda record: record.name)
def test_forward_and_backward(record):
    shape = (3, 64, 64) if record.name == "resnet50" else record.input_shape
    model = models.create(record.name, seed=0)
    logits = model(torch.randn(2, *shape))
    assert logits.shape == (2, record.num_classes)
    torch.nn.functional.cross_entropy(logits, torch.tensor([0, 1])).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize(("density", "fraction"), [(0.10, 0.1260), (0.20, 0.2231)])
def test_macs_of_uniform_resnet50_with_dense_first_layer(density, fraction):
    count = cost_of("resnet50")
    densities = {layer.name: density for layer in count.sparsifiable if layer.name != "conv1"}
    assert count.macs_at(densities) / count.macs == pytest.approx(fraction, abs=5e-5)


def test_macs_at_the_erk_densities_of_lenet():
    small, caffe = cost_of("lenet300"), cost_of("lenet5")
    erk = {"fc1": 0.0385, "fc2": 0.1113, "fc3": 0.9185}
    assert small.macs_at(erk) / small.macs == pytest.approx(0.0500, abs=2e-4)
    erk = {"conv1": 0.7261, "conv2": 0.0375, "fc3": 0.0381, "fc4": 1.0}
    assert caffe.macs_at(erk) / caffe.macs == pytest.approx(0.1262, abs=2e-4)
