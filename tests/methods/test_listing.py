"""The table of methods is short on a narrow terminal and whole on a wide one."""

import pytest

import regrow
from regrow.methods import METHODS


@pytest.fixture
def printed(capsys, monkeypatch):
    def show(width):
        monkeypatch.setenv("COLUMNS", str(width))
        regrow.list_methods()
        return capsys.readouterr().out

    return show


def test_a_narrow_terminal_has_names_and_summaries(printed):
    shown = printed(80)
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) < 4 * len(METHODS)
    assert {line.split()[0] for line in lines if line.strip()} >= set(METHODS)
    assert "extra memory" not in shown
    assert "120 columns" in shown


def test_a_wide_terminal_has_costs_too(printed):
    shown = printed(160)
    assert "extra memory" in shown
    assert "1 dense gradient per layer" in shown
    assert "columns" not in shown


def test_a_control_has_no_paper():
    cited = {method.name: method.citation for method in regrow.list_methods(show=False)}
    assert cited["static"] == "control"
    assert cited["rigl"] == "Evci et al. 2020"
