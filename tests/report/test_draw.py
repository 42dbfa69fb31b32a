import re

import numpy as np
import pytest

from regrow.report.draw import big_number, look, new, thin, to_svg


def drawn(name):
    with look(name):
        figure, axes = new(3, 2)
        axes.plot([0, 1], [1, 2], marker="o")
        axes.imshow(np.eye(3))
        return to_svg(figure, name, "a <label>".replace("<", "&lt;").replace(">", "&gt;"))


def test_svg_is_inline_and_refers_only_to_itself():
    svg = drawn("first")
    assert svg.startswith("<svg viewBox=")
    assert svg.endswith("</svg>")
    assert "http" not in svg
    assert "xmlns" not in svg
    references = re.findall(r'(?:href="|url\()([^")]*)', svg)
    assert references
    ids = set(re.findall(r'id="([^"]+)"', svg))
    assert all(ref.startswith("data:image/png") or ref.removeprefix("#") in ids for ref in references)


def test_same_bytes_again_and_no_common_ids_between_drawings():
    assert drawn("first") == drawn("first")
    first, second = (set(re.findall(r'id="([^"]+)"', drawn(name))) for name in ("first", "second"))
    assert not first & second


def test_thinning_keeps_the_end_and_the_mean():
    x, y = thin(range(1, 1001), range(1000), most=100)
    assert len(x) == 100
    assert x[-1] == 1000
    assert y.mean() == pytest.approx(np.mean(range(1000)))
    assert thin([1, 2], [3, 4])[1].tolist() == [3, 4]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.5, "0.5"), (999, "999"), (1000, "1k"), (999_900, "1M"), (-2410, "-2.41k"), (3e12, "3T")],
)
def test_big_numbers(value, text):
    assert big_number(value) == text
