"""Figures as files."""

from regrow.figure import blank, save


def test_the_same_figure_gives_the_same_bytes(tmp_path):
    written = []
    for stem in (tmp_path / "one.5", tmp_path / "two.5"):
        figure = blank(2, 2)
        figure.subplots().plot([1, 2], [3, 4], label="line")
        figure.legend()
        written.append(save(figure, stem))
    assert [path.name for path in written[0]] == ["one.5.svg", "one.5.png"]
    assert [path.read_bytes() for path in written[0]] == [path.read_bytes() for path in written[1]]
