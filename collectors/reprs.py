"""What an object with tables shows in a notebook or a shell: one line with what it is of, instead of the tables."""

from __future__ import annotations

from deepprof.collectors.errors import escaped

LONGEST_REPR = 120  # characters
LONGEST_PATH = 40


def one_line(of: object, *facts: str) -> str:
    """Return `Kind(fact, fact)` for an object of this kind; printable characters only, and at most `LONGEST_REPR`."""
    kind, text = type(of).__name__, escaped(", ".join(fact for fact in facts if fact))
    most = LONGEST_REPR - len(kind) - 2
    return f"{kind}({text if len(text) <= most else text[: most - 1] + '…'})"


def shorten_path(path: object) -> str:
    """Return a path in quotes, only its end if it is long: there is the name of the file."""
    text = str(path)
    return f"'{text if len(text) <= LONGEST_PATH else '…' + text[1 - LONGEST_PATH :]}'"


def in_milliseconds(time_ns: float) -> str:
    """Return a time in milliseconds, with three digits or all of the whole ones.

    >>> in_milliseconds(34_912_000), in_milliseconds(1_200), in_milliseconds(12_345_678_900)
    ('34.9 ms', '0.0012 ms', '12,346 ms')
    """
    time_ms = time_ns / 1e6
    return f"{time_ms:,.0f} ms" if time_ms >= 100 else f"{time_ms:.3g} ms"
