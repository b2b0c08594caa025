"""Saved matchers made by hand, and what any bytes must be: refused in words, or a matcher that works."""

import struct
import zlib

import numpy as np

from deepprof.mining.matcher_state import MAGIC, VERSION, MatcherSnapshot
from deepprof.mining.matching import Matcher
from tests.mining.streams import TEMPLATE

HEAD, NUMBERS = struct.Struct("<8sII"), 16


def sealed(body):
    """These numbers and arrays with the head and the checksum that make them a saved state."""
    return HEAD.pack(MAGIC, VERSION, zlib.crc32(body)) + body


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
