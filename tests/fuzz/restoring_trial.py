"""What the fuzzer of `Matcher.restore` begins with and tries; apart, so that the fuzzer can watch the code under it."""

import numpy as np

from deepprof.mining.matching import Matcher
from tests.mining.states import HEAD, sealed, survives
from tests.mining.streams import FOREIGN, TEMPLATE


def seeds() -> list[bytes]:
    """Return saved matchers in every kind of place: new, locked, after a difference, lost, finished; of both widths."""
    found = []
    for template in (TEMPLATE, TEMPLATE * 5000):
        for stream in ([], TEMPLATE[:20], [*TEMPLATE, FOREIGN], [*TEMPLATE, *[FOREIGN] * 200]):
            for final in (False, True):
                matcher = Matcher(template)
                matcher.feed(np.array(stream, np.int64), final=final)
                found.append(matcher.save())
    return found


def try_bytes(data: bytes) -> None:
    """Restore from these bytes, and from what they are behind a head that agrees with them."""
    survives(data)
    survives(sealed(data[HEAD.size :]))
