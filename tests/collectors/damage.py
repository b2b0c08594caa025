"""Files damaged in every way that a test should try, and the one check that all importers share."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers import Importer
from deepprof.collectors.trace import Trace
from tests.chance import examples

HUGE = (b"-1", b"18446744073709551616", b"1e400", b"99999999999999999999999999", b"NaN", b"null", b"\xff\xfe", b'"')


def damaged(content: bytes, seed: int = 0, count: int = 60) -> Iterator[bytes]:
    """Yield `content` cut at many places, then with bytes flipped, pieces lost, doubled and overwritten.

    `count` is the number of each in a run with all examples.
    """
    rng, count = random.Random(seed), examples(count)
    places = sorted({0, 1, 2, 4, 16, len(content) - 1, *(rng.randrange(len(content)) for _ in range(count))})
    yield from (content[:at] for at in places if at >= 0)
    for _ in range(count):
        flipped = bytearray(content)
        for _ in range(rng.choice((1, 1, 3, 30))):
            flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
        yield bytes(flipped)
    for _ in range(count):
        start = rng.randrange(len(content))
        end = min(len(content), start + rng.choice((1, 8, 200)))
        middle = rng.choice((b"", content[start:end] * 2, rng.choice(HUGE), rng.randbytes(end - start)))
        yield content[:start] + middle + content[end:]


def read_or_refuse(importer: Importer, path: Path, *, details: bool = False) -> Trace | TraceError:
    """Return the trace, or the one-line error; anything else that `importer` raises fails the test."""
    try:
        trace = importer.read(path, details=details)
    except TraceError as refusal:
        return checked(refusal)
    counts = trace.accounting
    assert counts.read == counts.kept + sum(counts.dropped.values())
    return trace


def checked(refusal: TraceError) -> TraceError:
    """Return `refusal`, which must be one line that a terminal can show."""
    assert "\n" not in str(refusal)
    assert str(refusal).isprintable()
    return refusal


def survives(
    importer: Importer,
    path: Path,
    content: bytes,
    check: Callable[[Path], object] | None = None,
    *,
    details: bool = False,
) -> int:
    """Damage `content` in every way, write it to `path` and read it; return how many of the files were refused."""
    refused = 0
    for piece in damaged(content):
        path.write_bytes(piece)
        importer.accepts(piece[:65536], path)
        refused += isinstance(read_or_refuse(importer, path, details=details), TraceError)
        if check is not None:
            check(path)
    return refused


WITHIN = """
import json, re, resource, sys
from deepprof.collectors import importers
from deepprof.collectors.errors import TraceError
def held(what):
    return int(re.search(what + r":\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
own, limit = held("VmRSS"), int(sys.argv[2])
address_space = held("VmSize") + 4 * 2**30 + limit  # for the machine's sake
resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))
try:
    told = {"kept": importers.read(sys.argv[1]).accounting.kept}
except TraceError as error:
    told = {"error": str(error)}
print(json.dumps({"told": told, "nbytes": held("VmHWM") - own}))
"""


def read_within(path: Path, nbytes: int, seconds: float = 60) -> dict[str, object]:
    """Read `path` in a process that may take `nbytes` more than at its start: `kept` records, or the `error`."""
    command = [sys.executable, "-c", WITHIN, str(path), str(nbytes)]
    done = subprocess.run(command, capture_output=True, timeout=seconds, check=False, text=True)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["nbytes"] <= nbytes, f"{answer['nbytes'] / 2**20:.0f} MiB, {nbytes / 2**20:.0f} allowed"
    return dict(answer["told"])
