"""Tables as text."""

from rich.table import Table

from regrow.text import as_text


def test_plain_and_as_wide_as_asked():
    table = Table("name", "value")
    table.add_row("density", "5%")
    text = as_text(table, width=40)
    assert "density" in text
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 40
