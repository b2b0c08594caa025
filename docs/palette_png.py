"""Pictures with a palette: a third of the bytes of what a browser writes."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

SIGNATURE = b"\x89PNG\r\n\x1a\n"
COLOURS = 256
RGB = (8, 2)  # bits and kind of the pixels that are read
INDEXED = (8, 3)  # of those that are written


def pack_png(png: bytes) -> bytes:
    """Return a picture of RGB pixels in at most `COLOURS` colours."""
    chunks = list(_read_chunks(png))
    width, height, *form = struct.unpack_from(">IIBB", chunks[0][1])
    if tuple(form) != RGB:
        raise ValueError(f"a picture of the form {form} is not one of RGB pixels")
    rows = zlib.decompress(b"".join(data for kind, data in chunks if kind == b"IDAT"))
    palette, index = choose_colours(_undo_filters(rows, width * 3).reshape(height, width, 3))
    lines = np.concatenate([np.zeros((height, 1), np.uint8), index], axis=1)  # each begins with "no filter"
    return SIGNATURE + b"".join(
        (
            _write_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, *INDEXED, 0, 0, 0)),
            _write_chunk(b"PLTE", palette.tobytes()),
            _write_chunk(b"IDAT", zlib.compress(lines.tobytes(), 9)),
            _write_chunk(b"IEND", b""),
        )
    )


def choose_colours(pixels: Bytes) -> tuple[Bytes, Bytes]:
    """Return colours (n × 3), and for each pixel (height × width × 3) the number of the nearest of them.

    The most frequent colour is the first; each of the others is the one that is missed most: by many pixels, by far.
    """
    colours, number, count = np.unique(pixels.reshape(-1, 3), axis=0, return_inverse=True, return_counts=True)
    wide, chosen = colours.astype(np.int64), [int(count.argmax())]
    missed, nearest = np.full(len(colours), np.iinfo(np.int64).max), np.zeros(len(colours), np.uint8)
    for place in range(COLOURS):
        distance = ((wide - wide[chosen[place]]) ** 2).sum(axis=1)
        nearest[distance < missed] = place
        missed = np.minimum(missed, distance)
        if place == COLOURS - 1 or not missed.any():
            break
        chosen.append(int((missed * count).argmax()))
    return colours[chosen], nearest[number.ravel()].reshape(pixels.shape[:2])


def _undo_filters(rows: bytes, nbytes: int) -> Bytes:
    """Return the bytes of rows of RGB pixels, each written as differences from its neighbours."""
    above, found = bytearray(nbytes + 3), []
    for begin in range(0, len(rows), nbytes + 1):
        kind, line = rows[begin], bytearray(3) + rows[begin + 1 : begin + 1 + nbytes]
        for at in range(3, nbytes + 3) if kind else ():
            line[at] = (line[at] + _predict(kind, line[at - 3], above[at], above[at - 3])) & 255
        found.append(bytes(line[3:]))
        above = line
    return np.frombuffer(b"".join(found), np.uint8)


def _predict(kind: int, left: int, up: int, corner: int) -> int:
    """Return what a filter of PNG (section 9 of its specification) expects of a byte."""
    if kind == 1:
        return left
    if kind == 2:
        return up
    if kind == 3:
        return (left + up) // 2
    guess = left + up - corner
    return min((left, up, corner), key=lambda each: abs(guess - each))


def _read_chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the kind and the data of each chunk."""
    at = len(SIGNATURE)
    while at < len(png):
        (length,) = struct.unpack_from(">I", png, at)
        yield png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        at += 12 + length


def _write_chunk(kind: bytes, data: bytes) -> bytes:
    """Return a chunk with its length and its checksum."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
