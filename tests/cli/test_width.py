"""Help fits the terminal, and says the same at every width."""

import pytest

from regrow.cli.main import COMMANDS, main


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_eighty_columns(command, capsys, monkeypatch):
    shown = {}
    for width in (80, 200):
        monkeypatch.setenv("COLUMNS", str(width))
        with pytest.raises(SystemExit):
            main([command, "--help"])
        shown[width] = capsys.readouterr().out
    # A command that is longer by itself stays one line, to be copied.
    assert not [line for line in shown[80].splitlines() if len(line) > 80 and not line.lstrip().startswith("regrow ")]
    assert sorted(shown[80].split()) == sorted(shown[200].split())


def test_no_help_ends_with_a_heading(capsys):
    for command in COMMANDS:
        with pytest.raises(SystemExit):
            main([command, "--help"])
        assert not capsys.readouterr().out.rstrip().endswith(":"), command
