"""The pictures of the documents: there, shown by the README, small; and how they are packed."""

from __future__ import annotations

import re
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from docs.palette_png import SIGNATURE, choose_colours, pack_png
from docs.pictures import HEIGHT, PICTURES, WIDTH

ROOT = Path(__file__).resolve().parents[1]
MOST_NBYTES = 120_000


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_there_and_small(name: str) -> None:
    picture = (ROOT / "docs" / "pictures" / f"{name}.png").read_bytes()
    assert picture.startswith(SIGNATURE)
    assert struct.unpack_from(">II", picture, 16) == (WIDTH, HEIGHT)
    assert len(picture) <= MOST_NBYTES


def test_the_readme_shows_the_pictures_and_no_others() -> None:
    shown = re.findall(r"docs/pictures/([\w-]+)\.png", (ROOT / "README.md").read_text())
    files = sorted(path.stem for path in (ROOT / "docs" / "pictures").iterdir())
    assert sorted(shown) == sorted(PICTURES) == files


def test_a_picture_is_read_as_it_was_filtered() -> None:
    # By hand: a row as it is, then the same three pixels as differences to the left, above, the mean and Paeth's guess.
    pixels = [10, 20, 30, 13, 25, 37, 5, 5, 5]
    left = [10, 20, 30, 3, 5, 7, 248, 236, 224]
    mean = [5, 10, 15, 2, 3, 4, 253, 246, 239]
    paeth = [0, 0, 0, 0, 0, 0, 0, 0, 0]
    rows = b"".join(bytes([kind, *row]) for kind, row in enumerate([pixels, left, [0] * 9, mean, paeth]))
    png = SIGNATURE + chunk(b"IHDR", struct.pack(">IIBBBBB", 3, 5, 8, 2, 0, 0, 0))
    packed = pack_png(png + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
    palette = packed[packed.index(b"PLTE") + 4 :][:9]
    assert palette == bytes([5, 5, 5, 10, 20, 30, 13, 25, 37])
    begin = packed.index(b"IDAT") + 4
    (length,) = struct.unpack_from(">I", packed, begin - 8)
    assert zlib.decompress(packed[begin : begin + length]) == bytes([0, 1, 2, 0]) * 5


def test_of_alike_colours_the_most_frequent_stays() -> None:
    grey = np.arange(256, dtype=np.uint8)
    pixels = np.stack([np.stack([grey, grey, grey], axis=1), np.full((256, 3), 255, np.uint8)])
    pixels[0, :, 2] = pixels[0, ::-1, 2]
    pixels[1, 0] = [254, 254, 254]
    palette, index = choose_colours(pixels)
    assert len(palette) <= 256
    assert (palette[index[1]] == 255).all()


def test_other_pixels_are_refused() -> None:
    with pytest.raises(ValueError, match="not one of RGB"):
        pack_png(SIGNATURE + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 6, 0, 0, 0)))
