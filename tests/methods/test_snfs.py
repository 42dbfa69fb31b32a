"""SNFS-ERK: growth by an own average of the dense gradient, coefficient 0.9."""

import torch

from tests.support.manual import Manual


def test_growth_takes_the_largest_average_of_the_dense_gradient():
    values = torch.arange(1.0, 61).view(6, 10)
    run = Manual("snfs-erk", [values], density=0.5, steps=100, update_every=8,
                 optimizer=lambda p: torch.optim.SGD(p, lr=0.0, momentum=0.5, weight_decay=0.1))  # fmt: skip
    average = torch.zeros(6, 10)
    for t in range(60):
        gradient, before = torch.randn(6, 10), run.masks[0]
        after = run.step(gradient).masks[0]
        average = 0.9 * average + 0.1 * gradient
        if t and t % 8 == 0:
            assert bool((before != after).any())
            assert float(average.abs()[after & ~before].min()) >= float(average.abs()[~after].max())
    assert run.handle.updates == 8


def test_layers_keep_their_counts():
    run = Manual("snfs-erk", [torch.rand(6, 10), torch.rand(10, 30)], density=0.3, steps=40, update_every=4)
    counts = run.counts
    for _ in range(30):
        assert run.step(torch.randn(6, 10), 100 * torch.randn(10, 30)).counts == counts
