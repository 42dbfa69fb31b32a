"""Analyses of an experiment are written where its results are."""

import pytest

from regrow.experiments.analyses import Material, run
from regrow.experiments.catalogue import find
from tests.experiments.analyses.fakes import published


def test_texts_are_written_too(tmp_path):
    (text,) = run(published("sensitivity", tmp_path))
    assert (tmp_path / "wilcoxon.md").read_text() == text
    assert run(published("cifar-wrn28", tmp_path)) == []


@pytest.mark.parametrize("name", ["ablation", "sensitivity", "dense-equivalence", "features"])
def test_nothing_finished_is_nothing_to_say(tmp_path, name):
    assert run(Material(find(name), find(name).cells(), [0], [], [], tmp_path, tmp_path)) == []
