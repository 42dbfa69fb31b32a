import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from regrow.data import DataError
from regrow.data.idx import dump_idx, parse_idx, read_idx
from tests.support.idx_files import write_idx

TYPES = ("uint8", "int8", "int16", "int32", "float32", "float64")


@given(
    hnp.arrays(
        dtype=st.sampled_from(TYPES).map(np.dtype),
        shape=hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
        elements={"allow_nan": False},
    ),
    st.booleans(),
)
def test_round_trip(array, compressed):
    content = dump_idx(array)
    decoded = parse_idx(gzip.compress(content, mtime=0) if compressed else content)
    assert decoded.dtype == array.dtype
    assert decoded.shape == array.shape
    assert np.array_equal(decoded, array)
    assert decoded.flags.writeable


def test_layout_of_the_format():
    content = dump_idx(np.array([[1, 2], [3, 258]], np.int16))
    assert content.hex() == "00000b02" + "00000002" * 2 + "0001000200030102"


@pytest.mark.parametrize("name", ["a-idx1-ubyte", "a-idx1-ubyte.gz"])
def test_files(tmp_path, name):
    write_idx(tmp_path / name, np.arange(5, dtype=np.uint8))
    assert (tmp_path / name).read_bytes().startswith(b"\x1f\x8b") == name.endswith(".gz")
    assert read_idx(tmp_path / name).tolist() == [0, 1, 2, 3, 4]


GOOD = dump_idx(np.arange(6, dtype=np.uint8).reshape(2, 3))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "x.idx: not an IDX file .it starts with nothing"),
        (b"\x89PNG\r\n", "not an IDX file .it starts with 89 50 4e 47"),
        (b"\0\0\x07\x01" + bytes(4), "not an IDX file"),
        (GOOD[:6], "truncated inside the header"),
        (GOOD[:-1], r"truncated, 17 bytes where the header of shape \(2, 3\) asks for 18"),
        (GOOD + b"\0", "too long, 19 bytes"),
        (gzip.compress(GOOD, mtime=0)[:-9], "damaged gzip file"),
        (gzip.compress(GOOD, mtime=0)[:12] + bytes(20), "damaged gzip file"),
    ],
)
def test_damaged_content(content, message):
    with pytest.raises(DataError, match=message):
        parse_idx(content, "x.idx")


def test_missing_file(tmp_path):
    with pytest.raises(DataError, match=r"absent: cannot be read .No such file"):
        read_idx(tmp_path / "absent")


def test_type_that_idx_does_not_have():
    with pytest.raises(DataError, match="cannot hold int64: use one of uint8"):
        dump_idx(np.arange(3))


def test_more_dimensions_than_an_array_has():
    with pytest.raises(DataError, match="100 dimensions"):
        parse_idx(bytes((0, 0, 8, 100)) + bytes(400))


def test_a_bomb_is_refused_before_it_is_unpacked():
    small = bytes((0, 0, 8, 1)) + (10).to_bytes(4, "big")
    with pytest.raises(DataError, match="unpacks to more than 18 bytes"):
        parse_idx(gzip.compress(small + bytes(50_000_000)))
    huge = bytes((0, 0, 8, 3)) + bytes([255] * 12)
    for content in (huge, gzip.compress(huge)):
        with pytest.raises(DataError, match="would take"):
            parse_idx(content)


def test_no_buffer_is_taken_for_what_a_header_claims(monkeypatch):
    monkeypatch.setattr("regrow.data.bounds.memory", lambda: 1 << 62)
    with pytest.raises(DataError, match="truncated, 21 bytes"):
        parse_idx(gzip.compress(bytes((0, 0, 8, 4, 0, 0, 255, 255, 0, 0, 255, 255, 0, 0, 255, 255, 0, 0, 0, 1)) + b"x"))
