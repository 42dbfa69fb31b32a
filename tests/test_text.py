"""Tables as text."""

from rich.table import Table

from regrow.text import as_text, show


def test_plain_and_as_wide_as_asked():
    table = Table("name", "value")
    table.add_row("density", "5%")
    text = as_text(table, width=40)
    assert "density" in text
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 40


def test_no_column_is_left_out_of_a_narrow_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    table = Table()
    for index in range(12):
        table.add_column(f"column {index}", no_wrap=True)
    table.add_row(*(f"value {index}" for index in range(12)))
    show(table)
    shown = capsys.readouterr().out
    assert all(f"column {index}" in shown and f"value {index}" in shown for index in range(12))
