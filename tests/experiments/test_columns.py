"""CSV files with fixed columns."""

import pytest

from regrow.errors import StateError
from regrow.experiments.columns import read_table, write_table


def test_what_is_written_comes_back_as_text_without_what_has_no_column(tmp_path):
    write_table(tmp_path / "t.csv", ("name", "value"), [{"name": 'a "b", c', "value": 1.5, "more": 3}])
    assert read_table(tmp_path / "t.csv", ("name", "value"), "things") == [{"name": 'a "b", c', "value": "1.5"}]


def test_no_file_is_no_rows_and_a_foreign_one_an_error(tmp_path):
    assert read_table(tmp_path / "t.csv", ("name",), "things") == []
    write_table(tmp_path / "t.csv", ("other",), [])
    with pytest.raises(StateError, match=r"t\.csv is not a table of things: remove it, and it is made again"):
        read_table(tmp_path / "t.csv", ("name",), "things")
