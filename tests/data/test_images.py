import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from regrow.data import DataError, draws, images


def photograph(width, height, mode="RGB"):
    """A smooth picture: red grows to the right, green downwards."""
    across = np.linspace(0, 255, width)[None, :].repeat(height, 0)
    down = np.linspace(0, 255, height)[:, None].repeat(width, 1)
    picture = np.stack([across, down, (across + down) / 2], axis=2).astype(np.uint8)
    return Image.fromarray(picture).convert(mode)


def uniform(seed=0):
    return draws.uniform(seed, np.arange(images.DRAWS))


def unflipped(seed):
    """Draws whose last number says: no flip."""
    return np.append(uniform(seed)[:-1], 0.9)


@given(st.integers(1, 900), st.integers(1, 900), st.integers(0, 10_000))
def test_random_box_lies_inside_and_has_an_allowed_form(width, height, seed):
    left, top, right, bottom = images.random_box(width, height, uniform(seed))
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height
    if min(width, height) >= 60 and max(width, height) < 1.3 * min(width, height):
        share = (right - left) * (bottom - top) / (width * height)
        aspect = (right - left) / (bottom - top)
        assert 0.07 < share <= 1
        assert 0.70 < aspect < 1.42


def test_random_boxes_spread_over_areas_and_places():
    boxes = np.array([images.random_box(400, 300, uniform(seed)) for seed in range(2000)])
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]) / 120_000
    assert areas.min() < 0.1
    assert areas.max() > 0.85
    assert boxes[:, 0].min() == 0
    assert boxes[:, 2].max() == 400
    centres = (boxes[:, 0] + boxes[:, 2]) / 2
    assert centres.mean() == pytest.approx(200, abs=5)


@pytest.mark.parametrize(("width", "height", "box"), [(1000, 10, (493, 0, 506, 10)), (10, 1000, (0, 493, 10, 506))])
def test_extreme_shapes_fall_back_to_the_centre(width, height, box):
    # Nearly the whole area at the widest aspect ratio: no crop fits.
    assert images.random_box(width, height, np.full(images.DRAWS, 0.999)) == box


@pytest.mark.parametrize("suffix", ["jpg", "png"])
def test_training_view_shows_the_box(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    photograph(640, 480).save(path)
    for seed in range(8):
        left, top, right, bottom = images.random_box(640, 480, unflipped(seed))
        view = images.training_view(path, 64, unflipped(seed)).astype(float)
        assert view.shape == (64, 64, 3)
        # The colours tell the place in the picture, also where the JPEG was decoded at a smaller scale.
        assert view[..., 0].mean() == pytest.approx(255 * (left + right) / 2 / 640, abs=3)
        assert view[..., 1].mean() == pytest.approx(255 * (top + bottom) / 2 / 480, abs=3)
        assert view[:, -1, 0].mean() - view[:, 0, 0].mean() == pytest.approx(255 * (right - left) / 640, abs=8)


def test_flip(tmp_path):
    photograph(300, 200).save(tmp_path / "a.png")
    plain = images.training_view(tmp_path / "a.png", 32, np.append(uniform()[:-1], 0.5))
    flipped = images.training_view(tmp_path / "a.png", 32, np.append(uniform()[:-1], 0.49))
    assert np.array_equal(flipped, plain[:, ::-1])
    assert not np.array_equal(flipped, plain)


@pytest.mark.parametrize(("width", "height"), [(500, 375), (375, 500), (300, 300), (97, 261), (1200, 801)])
def test_evaluation_view_is_resize_then_centre_crop(tmp_path, width, height):
    noise = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "a.png")
    short = 256 / min(width, height)
    size = tuple(256 if side == min(width, height) else int(side * short) for side in (width, height))
    resized = Image.fromarray(noise).resize(size, Image.Resampling.BILINEAR)
    left, top = (round((side - 224) / 2) for side in size)
    expected = np.asarray(resized.crop((left, top, left + 224, top + 224))).astype(int)
    difference = np.abs(images.evaluation_view(tmp_path / "a.png", 224) - expected)
    assert difference.max() <= 1


@pytest.mark.parametrize(
    ("mode", "suffix"), [("L", "jpg"), ("CMYK", "jpg"), ("RGBA", "png"), ("P", "png"), ("1", "png")]
)
def test_other_colour_modes_become_rgb(tmp_path, mode, suffix):
    path = tmp_path / f"a.{suffix}"
    photograph(80, 60, mode).save(path)
    for view in (images.training_view(path, 32, uniform()), images.evaluation_view(path, 32)):
        assert view.shape == (32, 32, 3)
        assert view.dtype == np.uint8
        if mode in ("L", "1"):
            assert (view[..., 0] == view[..., 1]).all()


@pytest.mark.parametrize("damage", ["truncated", "text", "empty", "absent"])
def test_damaged_file_is_named(tmp_path, damage):
    path = tmp_path / "bad.jpg"
    photograph(200, 200).save(path)
    if damage == "absent":
        path.unlink()
    else:
        path.write_bytes({"truncated": path.read_bytes()[:900], "text": b"hello", "empty": b""}[damage])
    for read in (lambda: images.evaluation_view(path, 32), lambda: images.training_view(path, 32, uniform())):
        with pytest.raises(DataError, match=r"bad\.jpg: cannot be read as an image .*; repair or remove"):
            read()


def test_sixteen_bits_are_scaled(tmp_path):
    ramp = np.tile(np.linspace(0, 255, 64).astype(np.uint16), (64, 1))
    Image.fromarray((ramp * 257).astype(np.uint16)).save(tmp_path / "sixteen.png")
    Image.fromarray(ramp.astype(np.uint8)).save(tmp_path / "eight.png")
    (tmp_path / "sixteen.pgm").write_bytes(b"P5 64 64 65535\n" + (ramp * 257).astype(">u2").tobytes())
    expected = images.evaluation_view(tmp_path / "eight.png", 32)
    for name in ("sixteen.png", "sixteen.pgm"):
        assert np.array_equal(images.evaluation_view(tmp_path / name, 32), expected)
    assert len(np.unique(expected)) > 20


def test_pixels_without_a_scale_are_refused(tmp_path):
    (tmp_path / "float.ppm").write_bytes(b"Pf\n4 4\n-1.0\n" + np.ones(16, "<f4").tobytes())
    with pytest.raises(DataError, match="mode F have no scale"):
        images.evaluation_view(tmp_path / "float.ppm", 4)
    assert "no scale" in images.problem(str(tmp_path / "float.ppm"))


def test_other_formats_are_not_even_tried(tmp_path):
    (tmp_path / "a.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\nshowpage\n")
    with pytest.raises(DataError, match="cannot be read as an image"):
        images.evaluation_view(tmp_path / "a.png", 4)


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".bmp", ".webp", ".ppm"])
@pytest.mark.parametrize("quick", [True, False])
def test_a_file_that_is_cut_off_is_found_quickly_or_not(tmp_path, suffix, quick):
    path = tmp_path / f"a{suffix}"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (50, 50, 3), np.uint8)).save(path)
    assert images.problem(str(path), quick) is None
    path.write_bytes(path.read_bytes()[:-1500])
    assert "repair or remove" in images.problem(str(path), quick)
    path.write_bytes(b"")
    assert f"a{suffix}" in images.problem(str(path), quick)
    assert "gone" in images.problem(str(tmp_path / "gone.png"), quick)
