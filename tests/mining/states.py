"""Saved states made by hand, and what any bytes must be: refused in words, or a matcher that works.

The layouts are written here once more, because other releases wrote and will read them.
"""

import json
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np

from deepprof.mining.matcher_state import MatcherSnapshot
from deepprof.mining.matching import Matcher
from tests.mining.streams import TEMPLATE

HEAD, NUMBERS, VERSION = struct.Struct("<8sII"), 16, 1
MATCHER, MINER = b"DPMATCH\0", b"DPONLINE"


def sealed(body, magic=MATCHER):
    """These numbers and arrays with the head and the checksum that make them a saved state."""
    return HEAD.pack(magic, VERSION, zlib.crc32(body)) + body


def released(kind):
    """The states of one kind that release 0.1.0 has saved, by name."""
    with zipfile.ZipFile(Path(__file__).with_name("saved-0.1.0.zip")) as file:
        return {name: file.read(name) for name in file.namelist() if name.startswith(kind)}


def pack(fields):
    """Any nested fields as a saved miner."""
    arrays = []

    def describe(array):
        arrays.append(array)
        return {"array": [array.dtype.str[1:], array.size]}

    text = json.dumps(fields, default=describe, separators=(",", ":")).encode()
    return sealed(b"".join([struct.pack("<Q", len(text)), text, *(array.tobytes() for array in arrays)]), MINER)


def unpack(data):
    """The fields of a saved miner."""
    (size,) = struct.unpack_from("<Q", data, HEAD.size)
    begin = HEAD.size + 8
    at = begin + size

    def revive(found):
        nonlocal at
        if list(found) != ["array"]:
            return found
        array = np.frombuffer(data, *found["array"], at)
        at += array.nbytes
        return array

    return json.loads(data[begin : begin + size], object_hook=revive)


def survives(data):
    """Refused in words, or a matcher that takes any stream and accounts for every symbol of it."""
    try:
        matcher = Matcher.restore(data)
    except ValueError as error:
        refusal = str(error)
    else:
        refusal = ""
        follows_anything(matcher)
    assert "\n" not in refusal


def follows_anything(matcher):
    if MatcherSnapshot.from_bytes(matcher.save()).place.finished:
        return
    for chunk in (np.arange(40), TEMPLATE, np.zeros(3000, np.uint16)):
        matcher.feed(chunk)
    matcher.feed([], final=True)
    assert (matcher.hits >= 0).all()
    Matcher.restore(matcher.save())
