"""Overrides anywhere on the command line."""

import pytest

from regrow.cli.configured import read_configuration, read_for_training, separate
from regrow.cli.main import parse
from regrow.errors import ConfigurationError

OWN = ("--out", "--show")


@pytest.mark.parametrize(
    ("line", "kept", "found"),
    [
        ("train demo --lr 0.1", "train demo", {"lr": "0.1"}),
        ("train --lr 0.1 demo", "train demo", {"lr": "0.1"}),
        ("train --lr=0.1 demo --out a", "train demo --out a", {"lr": "0.1"}),
        ("train --compile demo", "train demo", {"compile": "true"}),
        ("train --compile false demo", "train demo", {"compile": "false"}),
        ("train --compile no demo", "train demo", {"compile": "no"}),
        ("train demo --compile 1", "train demo", {"compile": "1"}),
        ("train demo --compile maybe", "train demo", {"compile": "maybe"}),
        ("train demo --nesterov=false --show", "train demo --show", {"nesterov": "false"}),
        ("train demo --out=a --compile", "train demo --out=a", {"compile": "true"}),
        ("train demo --option.prune_rate -0.5", "train demo", {"option.prune_rate": "-0.5"}),
        ("train demo --data.name=a=b", "train demo", {"data.name": "a=b"}),
    ],
)
def test_separate(line, kept, found):
    assert separate(line.split(), OWN) == (kept.split(), found)


@pytest.mark.parametrize("line", ["train demo --lr", "train demo --lr --compile", "train demo --densty 3"])
def test_a_missing_value_or_unknown_key_is_an_error(line):
    with pytest.raises(ConfigurationError):
        separate(line.split(), OWN)


@pytest.mark.parametrize(
    ("line", "execution"),
    [
        ("train demo", "auto"),
        ("train demo --method rigl", "auto"),
        ("train demo --execution masked", "masked"),
        ("train demo --sparse.execution sparse", "sparse"),
        ("train demo --compile", "masked"),
        ("train demo --compile --method rigl", "masked"),
        ("train demo --method dense", "masked"),
        ("train demo --method l0", "masked"),
    ],
)
def test_a_run_computes_as_measured_unless_told_otherwise(line, execution):
    assert read_for_training(parse(line.split())).sparse.execution == execution


def test_a_file_says_how_to_compute_or_leaves_it_open(tmp_path):
    path = tmp_path / "mine.toml"
    for text, execution in (("", "auto"), ('execution = "masked"\n', "masked"), ('execution = "sparse"\n', "sparse")):
        path.write_text(f'preset = "demo"\n[sparse]\ndensity = 0.1\n{text}')
        assert read_for_training(parse(["train", str(path)])).sparse.execution == execution


def test_grids_compute_as_their_configuration_says():
    assert read_configuration(parse(["sweep", "demo"])).sparse.execution == "masked"
