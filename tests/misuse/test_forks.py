"""Forked processes go on with a model that its parent used."""

import os

import pytest

from regrow import native
from tests.misuse.child import python

pytestmark = [
    pytest.mark.skipif(not native.available(), reason="native kernels not built"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here"),
]


@pytest.mark.parametrize("storage", ["dense", "compact"])
def test_children_compute_and_train_as_their_parent_does(storage):
    done = python("-m", "tests.misuse.forks", storage)
    assert done.returncode == 0, done.stderr
