"""The table of choices."""

from regrow.execution.choosing.explanation import Choice, Explanation

ROWS = (
    Choice("conv[1]", 0.05, "sparse", "sparse is faster, break-even 40.0%", 123.4, 4.567, 0.4),
    Choice("fc", 1.0, "masked", "native kernels are missing"),
)


def test_rows_are_a_sequence():
    table = Explanation(ROWS, "execution: auto")
    assert len(table) == 2
    assert table[0] is ROWS[0]
    assert table[:1] == ROWS[:1]
    assert list(table) == list(ROWS)


def test_the_table_as_text():
    text = str(Explanation(ROWS, "execution: auto", "measured [here]"))
    for part in ("conv[1]", "5.00%", "123", "4.57", "sparse is faster", "100.00%", "masked", "measured [here]"):
        assert part in text
