"""Scores against a calculation by hand."""

import numpy as np
import pytest
import torch
from torch import nn

from regrow.data.arrays import LabelledImages, Normalisation
from regrow.data.memory import ArrayDataset
from regrow.training.evaluation import evaluate
from regrow.training.processes import Processes


def dataset(classes, samples=23):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (samples, 1, 4, 4)).astype(np.uint8)
    names = tuple(map(str, range(classes)))
    labelled = LabelledImages(images, rng.integers(0, classes, samples))
    return ArrayDataset(
        labelled, Normalisation((0.5,), (0.25,)), name="x", split="test", class_names=names, shuffle=False
    )


def network(classes):
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, classes), nn.Dropout(0.5))


@pytest.mark.parametrize("classes", [4, 12])
@pytest.mark.parametrize("batch", [5, 100])
def test_scores(classes, batch):
    data, net = dataset(classes), network(classes).train()
    scores = evaluate(net, data, batch)
    images, labels = next(data.batches(batch_size=100))
    with torch.no_grad():
        logits = net[1](net[0](images))
    ranks = (logits > logits.gather(1, labels[:, None])).sum(1)
    assert scores.loss == pytest.approx(float(nn.functional.cross_entropy(logits, labels)), rel=1e-5)
    assert scores.accuracy == pytest.approx(float((ranks == 0).float().mean()))
    assert scores.top5 == (pytest.approx(float((ranks < 5).float().mean())) if classes > 10 else None)
    assert scores.samples == 23
    assert net.training


def test_the_model_is_left_as_it_was_also_after_an_error():
    data, net = dataset(4), network(4).train()
    net[2].eval()
    evaluate(net, data, 8)
    broken = nn.Sequential(*net, nn.Linear(99, 4)).train()
    broken[2].eval()
    with pytest.raises(RuntimeError):
        evaluate(broken, data, 8)
    for model in (net, broken):
        assert model.training
        assert [module.training for module in model[:3]] == [True, True, False]


def test_ranks_share_the_work():
    data, net = dataset(4), network(4)
    parts = []

    class Rank(Processes):
        def sum(self, values):
            parts.append(values)
            return values

    for rank in range(3):
        evaluate(net, data, 8, Rank(rank, 3))
    whole = evaluate(net, data, 8)
    loss, hits, _, samples = (sum(column) for column in zip(*parts, strict=True))
    assert samples == 23
    assert hits / samples == pytest.approx(whole.accuracy)
    assert loss / samples == pytest.approx(whole.loss)
