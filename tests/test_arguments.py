"""Arguments of `sparsify` are listed once."""

import inspect
from dataclasses import dataclass, fields

import pytest

import regrow
from regrow import arguments, config
from regrow.arguments import Argument, Sparse, argument, arguments_of, ways_to_say
from regrow.config import Config, from_dict, override, to_toml
from regrow.errors import ConfigurationError
from regrow.experiments.rows import setting_of
from regrow.ranges import POSITIVE
from regrow.training import setup

BEFORE = Config().identity()
SIGNATURE = inspect.signature(regrow.sparsify).parameters


def test_every_key_is_an_argument_of_sparsify_with_its_default():
    passed = arguments_of(Sparse())
    settled = {item.name for item in fields(Sparse) if Argument in item.metadata and item.metadata[Argument].settled}
    assert {*passed, *settled, "method"} <= set(SIGNATURE)
    assert passed == {name: SIGNATURE[name].default for name in passed}


def test_every_plain_argument_is_a_key():
    plain = {name for name, known in SIGNATURE.items() if isinstance(known.default, (bool, int, float, str))}
    assert plain - set(ways_to_say()) == {"method"}


@dataclass(frozen=True)
class More(Sparse):
    haste: int = argument(3, within=POSITIVE)


@pytest.fixture
def longer(monkeypatch):
    """A library with one more argument: nothing but the list knows of it."""
    monkeypatch.setattr(config, "Sparse", More)
    monkeypatch.setattr(arguments, "Sparse", More)
    return Config(sparse=More())


def test_a_new_argument_needs_one_place(longer, monkeypatch):
    given = override(longer, {"haste": "5"})
    assert given.sparse.haste == 5
    assert "haste = 5" in to_toml(given)
    assert from_dict({"sparse": {"haste": 5}}, longer) == given
    with pytest.raises(ConfigurationError, match="haste must be positive, got 0"):
        override(longer, {"haste": "0"})
    assert longer.identity() == BEFORE, "runs from before keep their hash"
    assert given.identity() != longer.identity()
    assert setting_of(given)["other"] == '{"sparse.haste": 5}'
    assert ways_to_say(More)["haste"] == "--haste, or haste in section [sparse]"
    calls = []
    monkeypatch.setattr(setup, "sparsify", lambda *_, **named: calls.append(named))
    setup.sparsify_as_configured(given, regrow.methods.build("set", {}), None, None, 10)
    assert calls[0]["haste"] == 5


def test_a_misplaced_argument_is_told_where_it_belongs():
    with pytest.raises(ConfigurationError, match="say --native-step, or native_step in section"):
        regrow.methods.build("set", {"native_step": False})
    with pytest.raises(ConfigurationError, match="did you mean 'calibration'"):
        regrow.methods.build("set", {"calibratoin": 1})
