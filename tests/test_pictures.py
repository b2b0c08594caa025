"""The pictures of the documents: there, shown by the README, small."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from docs.pictures import HEIGHT, PICTURES, WIDTH

ROOT = Path(__file__).resolve().parents[1]
MOST_NBYTES = 200_000
SIGNATURE = b"\x89PNG\r\n\x1a\n"


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
