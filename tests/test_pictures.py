"""The pictures of the documents: there, shown by the README, small; and how they are packed."""

from __future__ import annotations

import re
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from docs.palette_png import COLOURS, SIGNATURE, choose_colours, pack_png
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
    mean = [5, 10, 15, 2, 3, 4, 252, 246, 240]
    paeth = [0, 0, 0, 0, 0, 0, 0, 0, 0]
    rows = b"".join(bytes([kind, *row]) for kind, row in enumerate([pixels, left, [0] * 9, mean, paeth]))
    png = SIGNATURE + chunk(b"IHDR", struct.pack(">IIBBBBB", 3, 5, 8, 2, 0, 0, 0))
    packed = pack_png(png + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
    begin = packed.index(b"PLTE") + 4
    palette = np.frombuffer(packed[begin : begin + 9], np.uint8).reshape(3, 3)
    begin = packed.index(b"IDAT") + 4
    (length,) = struct.unpack_from(">I", packed, begin - 8)
    lines = np.frombuffer(zlib.decompress(packed[begin : begin + length]), np.uint8).reshape(5, 4)
    assert lines[:, 0].tolist() == [0] * 5
    assert palette[lines[:, 1:]].reshape(5, 9).tolist() == [pixels] * 5


def test_rare_colours_become_the_nearest_of_those_that_are_kept() -> None:
    often = np.array([[level, 0, 0] for level in range(COLOURS)] * 9, np.uint8)
    rare = np.array([[7, 1, 0], [9, 0, 1]], np.uint8)
    palette, index = choose_colours(np.concatenate([often, rare])[None])
    assert len(palette) == COLOURS
    assert palette[index[0, -2:]].tolist() == [[7, 0, 0], [9, 0, 0]]


def test_a_few_pixels_of_a_colour_of_their_own_keep_it() -> None:
    greys = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 3, axis=1)
    pixels = np.concatenate([*[greys] * 9, *[np.array([[200, 20, 90]], np.uint8)] * 3])[None]
    palette, index = choose_colours(pixels)
    assert palette[index[0, -1]].tolist() == [200, 20, 90]


def test_other_pixels_are_refused() -> None:
    with pytest.raises(ValueError, match="not one of RGB"):
        pack_png(SIGNATURE + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 6, 0, 0, 0)))
