"""Settings as words."""

import pytest

from regrow.config import Config
from regrow.errors import ConfigurationError
from regrow.race.entries import base_of, entries_of


def test_settings_are_methods_densities_and_keys():
    base = base_of("cifar10", {"model": "alexnet-s", "max_steps": "60", "update-every": "15"})
    assert (base.data.name, base.model, base.max_steps, base.sparse.update_every) == ("cifar10", "alexnet-s", 60, 15)
    words = "dense,sparse-momentum@0.1,sparse-momentum@0.1:macs=0.05:prune_rate=0.3,rigl@0.2:distribution=uniform"
    dense, plain, bound, rigl = entries_of(base, words, 1, "sparse")
    assert (dense.config.sparse.method, dense.config.sparse.density, dense.config.sparse.execution) == (
        "dense",
        1.0,
        "masked",
    )
    assert (plain.config.sparse.method, plain.config.sparse.density, plain.config.sparse.execution) == (
        "sparse-momentum",
        0.1,
        "sparse",
    )
    assert bound.config.sparse.macs == 0.05
    assert bound.config.sparse.options == {"prune_rate": 0.3}
    assert rigl.config.sparse.distribution == "uniform"
    assert len({entry.folder for entry in (dense, plain, bound, rigl)}) == 4


def test_seeds_and_folders():
    found = entries_of(Config(), "dense,set@0.1", 2, "masked")
    assert [(entry.label, entry.config.seed) for entry in found] == [
        ("dense", 0),
        ("set@0.1", 0),
        ("dense", 1),
        ("set@0.1", 1),
    ]
    assert found[1].folder.startswith("set-0.1-s0-")


def test_steps_of_the_learning_rate_keep_their_place():
    assert base_of("cifar-vgg16-d", {"epochs": "25"}).schedule.every == 3000
    assert base_of("cifar-vgg16-d", {"epochs": "25", "schedule.every": "7"}).schedule.every == 7
    assert base_of("cifar-vgg16-d", {}).schedule.every == 30_000


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "different settings"),
        ("dense,dense", "different settings"),
        ("sparse-momentum", "METHOD@DENSITY"),
        ("dense@0.5", "METHOD@DENSITY"),
        ("set@0.1:lr", "no KEY=VALUE"),
        ("set@7", "density must lie"),
    ],
)
def test_words_that_cannot_be_meant(words, said):
    with pytest.raises(ConfigurationError, match=said):
        entries_of(Config(), words, 1, "sparse")


def test_unknown_data():
    with pytest.raises(ConfigurationError, match="cifar10"):
        base_of("cifar11", {})
