"""What the comparison of layers counts."""

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from regrow import native


@pytest.fixture
def peers(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import peers

    return peers


class Native:
    """Arrays behind properties, as in extension types."""

    __slots__ = ()
    values = property(lambda self: np.zeros(5, np.float32))


def test_kept_bytes_finds_tensors_and_arrays_wherever_they_are(peers):
    layer = nn.Linear(3, 2)
    layer.lists = {"rows": (np.zeros(4, np.int32), [torch.zeros(7)])}
    layer.same = layer.weight.detach()
    layer.csr = Native()
    assert peers.kept_bytes(layer) == 4 * (6 + 2 + 4 + 7 + 5)


def test_kept_bytes_ends_where_objects_hold_each_other(peers):
    one, two = SimpleNamespace(memory=torch.zeros(2)), SimpleNamespace(memory=torch.zeros(3))
    one.other, two.other = two, one
    assert peers.kept_bytes(one) == 20


@pytest.mark.skipif(not native.available(), reason="native kernels not built")
def test_peers_that_are_missing_are_named(peers, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "sparselab", None)
    monkeypatch.setitem(sys.modules, "sparseprop", None)
    assert peers.installed() == {}
    out = capsys.readouterr().out
    assert "sparseprop is left out" in out
    assert "sparselab is left out" in out
