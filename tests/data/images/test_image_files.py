"""Images that are decoded, and files that are none."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from data.images import image_files
from data.images.image_files import decode_image, encode_pixels, make_pixels, resize_and_crop

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (9, 14, 3), np.uint8)


def save(image, kind="PNG", **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def test_pixels_survive_a_png():
    for pixels in (PIXELS, PIXELS[..., 0], PIXELS[..., :1]):
        channels = 1 if pixels.ndim == 2 or pixels.shape[-1] == 1 else 3
        found = make_pixels(decode_image(encode_pixels(pixels), channels))
        assert found.dtype == np.uint8 and (found == pixels.reshape(*found.shape)).all()


def test_channels_are_converted():
    """Gray is the same in all channels; transparency is white; 16 bits become 8."""
    gray = PIXELS[..., 0]
    assert (make_pixels(decode_image(encode_pixels(gray), 3)) == gray[..., None]).all()
    red, green, blue = np.moveaxis(PIXELS.astype(int), -1, 0)
    brightness = make_pixels(decode_image(encode_pixels(PIXELS), 1))[..., 0]
    # ITU-R 601-2, in 16 bits as Pillow computes it
    expected = (red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16
    assert np.abs(brightness - expected).max() <= 1
    clear = np.dstack([PIXELS, np.zeros(PIXELS.shape[:2], np.uint8)])
    assert (make_pixels(decode_image(save(Image.fromarray(clear)), 3)) == 255).all()
    deep = Image.fromarray(gray.astype(np.uint16) * 257)
    assert (make_pixels(decode_image(save(deep), 1))[..., 0] == gray).all()


def test_a_dark_image_of_16_bits_stays_dark():
    """The scale is the format's, whatever values an image has, in both modes of Pillow."""
    dark = np.array([[0, 200, 255], [256, 257, 65535]], np.uint16)
    expected = [[0, 0, 0], [0, 1, 255]]
    assert make_pixels(decode_image(save(Image.fromarray(dark)), 1))[..., 0].tolist() == expected
    wide = Image.fromarray(dark.astype(np.int32))
    assert wide.mode == "I"
    assert make_pixels(image_files.convert_channels(wide, 1))[..., 0].tolist() == expected
    clear = save(Image.fromarray(dark), transparency=257)
    assert make_pixels(decode_image(clear, 1))[..., 0].tolist() == [[0, 0, 0], [0, 255, 255]]
    only_dark = Image.fromarray(dark[:1])
    assert not make_pixels(decode_image(save(only_dark), 1)).any()


def test_an_image_is_turned_as_its_camera_says():
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees clockwise
    file = save(Image.fromarray(PIXELS), exif=exif)
    assert (make_pixels(decode_image(file, 3)) == np.rot90(PIXELS, -1)).all()


def test_the_center_of_an_evaluation():
    """The shorter side becomes size / crop_ratio, and the center is cut out."""
    wide = Image.fromarray(np.repeat(np.arange(60, dtype=np.uint8)[None], 30, axis=0))
    found = make_pixels(resize_and_crop(wide, 30, 1.0))[..., 0]
    assert (found == np.arange(15, 45)).all()
    found = make_pixels(resize_and_crop(wide, 24, 0.8))[..., 0]
    assert (found == np.arange(18, 42)).all()
    found = make_pixels(resize_and_crop(wide, 60, 1.0))[..., 0]  # twice as large
    assert np.abs(found[30] - np.linspace(14.75, 44.25, 60)).max() < 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "a.png: the file is empty"),
        (b"no image", "a.png: in none of the formats JPEG, PNG"),
        (save(Image.fromarray(PIXELS))[:-40], "a.png: a damaged image"),
        (save(Image.fromarray(PIXELS), "JPEG")[:200], "a.png: "),
        (save(Image.fromarray(PIXELS), "PPM"), "a.png: in none of the formats"),
        (save(Image.new("L", (1, 101))), "a.png: 1 x 101 pixels; the longer side"),
    ],
)
def test_a_bad_image_is_named(content, message):
    with pytest.raises(ValueError, match=message):
        decode_image(content, 3, "a.png")


def test_a_bomb_is_refused_before_it_is_decompressed(monkeypatch):
    """The number of pixels is read from the header; a file of some hundred bytes may have many."""
    bomb = save(Image.new("1", (9_000, 9_000)))
    assert len(bomb) < 20_000
    with pytest.raises(ValueError, match="9000 x 9000 pixels; at most 67,108,864"):
        decode_image(bomb, 3, "a.png")
    width = struct.pack(">I", 30_000)  # more than Pillow opens
    header = b"IHDR" + width + width + bomb[24:29]
    larger = bomb[:12] + header + struct.pack(">I", zlib.crc32(header)) + bomb[33:]
    with pytest.raises(ValueError, match="a.png: too large; at most 67,108,864 pixels"):
        decode_image(larger, 3, "a.png")
    monkeypatch.setattr(image_files, "MAX_PIXELS", 100)
    with pytest.raises(ValueError, match="14 x 9 pixels"):
        decode_image(save(Image.fromarray(PIXELS)), 3, "a.png")
