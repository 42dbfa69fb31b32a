import io
import sys

import pytest

from regrow.data.progress import progress, silent


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_nothing_without_a_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress("mnist") as report:
        assert report is silent
        report("file", 1, 2)
    assert sys.stderr.getvalue() == ""


@pytest.mark.parametrize("total", [200, None])
def test_a_bar_on_a_terminal(monkeypatch, total):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with progress("mnist") as report:
        report("train-images", 100, total)
    assert "mnist: train-images" in sys.stderr.getvalue()
