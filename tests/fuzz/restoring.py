"""A coverage-guided fuzzer of `Matcher.restore`, for as long as one likes:

    pip install -e .[test]
    python -m tests.fuzz.restoring CORPUS -max_total_time=600

Any bytes are refused with a ValueError, or make a matcher that works. The checksum is set right after every mutation,
so that it is no wall. libFuzzer's options follow the folder CORPUS; a failing input is written to a file.
"""

import sys
from pathlib import Path

import numpy as np

from tests.mining.states import HEAD, sealed, survives
from tests.mining.streams import FOREIGN, TEMPLATE


def seeds() -> list[bytes]:
    """Return saved matchers in each kind of place: new, locked, after a difference, lost, finished; of both widths."""
    from deepprof.mining.matching import Matcher

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


def main() -> None:
    import atheris

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        return sealed(atheris.Mutate(data[HEAD.size :], max(1, most - HEAD.size)))

    corpus = Path(sys.argv[1])
    corpus.mkdir(exist_ok=True)
    for number, data in enumerate(seeds()):
        (corpus / f"seed-{number}").write_bytes(data)
    atheris.instrument_all()
    atheris.Setup(sys.argv, try_bytes, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
