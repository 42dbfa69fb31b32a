"""The registry and the record of pieces."""

from typing import get_args

import pytest
import torch

import regrow
from regrow.errors import ConfigurationError
from regrow.methods import METHODS, Method, build, register
from regrow.methods.method import BudgetRule
from regrow.topology.redistribute import present
from tests.support.views import update, view


def test_every_method_says_who_what_and_at_what_price():
    methods = regrow.list_methods(show=False)
    assert len(methods) == len(METHODS)
    for method in methods:
        assert METHODS[method.name]().name == method.name
        assert all((method.paper, method.summary, method.extra_memory))
        assert method.budget in get_args(BudgetRule)
        assert METHODS[method.name].__doc__


def test_the_table_is_printed(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    regrow.list_methods()
    shown = capsys.readouterr().out
    assert "extra memory" in shown
    assert all(name in shown for name in METHODS)


def test_a_name_taken_is_an_error():
    with pytest.raises(ConfigurationError, match="registered already"):
        register(METHODS["rigl"])


def test_unknown_names_and_options_suggest_the_nearest():
    with pytest.raises(ConfigurationError, match="did you mean 'rigl'"):
        build("rigel", {})
    with pytest.raises(ConfigurationError, match="did you mean 'prune_rate'"):
        build("rigl", {"prune_rates": 0.1})
    with pytest.raises(ConfigurationError, match="did you mean 'density'"):
        build("rigl", {"densty": 0.1})
    with pytest.raises(ConfigurationError, match="takes no options"):
        build(build("set", {}), {"prune_rate": 0.1})


def test_own_criteria_replace_the_methods():
    method = build("sparse-momentum", {}).with_criteria(
        lambda layer: -layer.weight.abs(), present, lambda layer: layer.weight.new_tensor([1.0, 2.0, 3.0, 9.0])
    )
    change = method.update(update(view(torch.tensor([1.0, 2.0, 0.0, 0.0])), rate=0.5))
    assert change.masks[0].tolist() == [True, False, False, True]
    assert method.needs == {"momentum"}


def test_methods_in_one_piece_take_no_own_criteria():
    with pytest.raises(ConfigurationError, match="cannot be exchanged"):
        build("srigl", {}).with_criteria(None, None, lambda layer: layer.weight)


def test_what_only_removes_is_known():
    removing = {m.name for m in regrow.list_methods(show=False) if m.only_removes and m.prune is not None}
    assert removing == {"gradual-pruning", "han", "lottery-ticket"}


def test_only_adjust_sees_a_gradient():
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = []
    method = Method(
        "own", "none", 2026, "nothing", adjust=lambda layer: seen.append(layer.grad), perturb=lambda layer: layer.grad
    )
    regrow.sparsify(model, optimizer, method, density=0.5)
    model(torch.ones(3, 4)).sum().backward()
    with pytest.raises(ConfigurationError, match="only a method's adjust"):
        optimizer.step()
    assert [grad.shape for grad in seen] == [(2, 4)]


def test_a_record_needs_nothing_but_a_name():
    change = Method("own", "none", 2026, "nothing").update(update(view(torch.tensor([1.0, 0.0]))))
    assert change.masks[0].tolist() == [True, False]


@pytest.mark.parametrize(
    ("option", "remedy"),
    [
        ("density", "--density"),
        ("seed", "--seed"),
        ("scope", "--scope"),
        ("steps", "--epochs"),
        ("update_every", "--update-every"),
        ("distribution", "--distribution"),
    ],
)
def test_what_every_method_is_given_is_no_option(option, remedy):
    with pytest.raises(ConfigurationError, match=f"'{option}' is no option of method 'sparse-momentum': say {remedy}"):
        build("sparse-momentum", {option: 1})


@pytest.mark.parametrize("piece", ["prune", "redistribute", "grow", "rewire"])
def test_whole_pieces_say_what_they_need_too(piece):
    @regrow.needs("gradient")
    def own(*arguments):
        raise AssertionError

    assert Method("own", "nobody", 2026, "does nothing", **{piece: own}).needs == {"gradient"}
