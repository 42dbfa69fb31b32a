"""Counting loss and right answers."""

import torch

from regrow.training import tally
from regrow.training.tally import Tally


def batches(count):
    generator = torch.Generator().manual_seed(0)
    for size in range(1, count + 1):
        yield torch.randn(size, 4, generator=generator), torch.randint(4, (size,), generator=generator)


def test_counts_are_those_of_the_batches_one_by_one():
    found, hits = Tally(loss=2.0, hits=3, samples=5), 3
    for logits, labels in batches(7):
        found.add(0.5, logits, labels)
        hits += int((logits.argmax(1) == labels).sum())
    assert found.values() == [2.0 + 0.5 * 28, float(hits), 33.0]
    assert found.hits == hits  # asking again counts nothing twice


def test_answers_do_not_pile_up(monkeypatch):
    monkeypatch.setattr(tally, "_KEPT", 10)
    found = Tally()
    for logits, labels in batches(9):
        found.add(1.0, logits.requires_grad_(), labels)
        assert sum(kept.numel() for kept, _ in found._waiting) <= 10
        assert not any(kept.requires_grad for kept, _ in found._waiting)
    assert found.hits == sum(int((logits.argmax(1) == labels).sum()) for logits, labels in batches(9))
