"""Overrides anywhere on the command line."""

import pytest

from regrow.cli.configured import separate
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
