"""The online miner's speed: following a stream in chunks, next to the plain matcher and reading, and mining a window.

Following is measured on a miner that has locked and made its last review; mining, which happens a few times per loop,
is what one chunk may have to wait for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table

from benchmarks.mining import Symbols, best_ns, iteration, stream
from deepprof.mining import Matcher, find_loop, native
from deepprof.mining.online.miner import OnlineMiner

if TYPE_CHECKING:
    from rich.console import Console

CHUNKS = (1 << 9, 1 << 12, 1 << 14, 1 << 16)
WINDOWS = (1 << 13, 1 << 14, 1 << 15, 1 << 16, 1 << 17)
WARM = 200_000  # symbols after which a loop has been reviewed in all windows


@dataclass(frozen=True)
class Row:
    what: str
    chunk: str
    ns_per_symbol: float
    note: str = ""

    def cells(self) -> tuple[str, str, str, str, str]:
        rate = f"{1e3 / self.ns_per_symbol:,.0f}"
        return self.what, self.chunk, f"{self.ns_per_symbol:,.3f}", rate, self.note


def locked(symbols: Symbols) -> bytes:
    """The state of a miner that has read the warm-up and will not mine again while the loop goes on."""
    miner = OnlineMiner()
    miner.feed(symbols[:WARM])
    return miner.save()


def best_following_ns(symbols: Symbols, chunk: int, prepare: Callable[[], Callable[[Symbols], object]]) -> float:
    """The best of three runs through all chunks; what is fed is prepared anew for each, and that is not counted."""
    times = []
    for _ in range(3):
        feed = prepare()
        begin = time.perf_counter_ns()
        for first in range(0, symbols.size, chunk):
            feed(symbols[first : first + chunk])
        times.append(time.perf_counter_ns() - begin)
    return min(times) / symbols.size


def following_rows(length: int) -> list[Row]:
    """Reading, matching and mining online of the same streams."""
    rows = []
    for kind, noise in (("exact", 0.0), ("10 % of iterations noisy", 0.1)):
        symbols = stream(WARM + length, noise)
        state, rest = locked(symbols), symbols[WARM:]
        reading = best_ns(lambda s=rest: np.bitwise_xor.reduce(s), length)
        rows.append(Row(f"reading the symbols (xor), {kind}", "all", reading))
        for chunk in CHUNKS:
            matcher = best_following_ns(rest, chunk, lambda: Matcher(iteration()).feed)
            online = best_following_ns(rest, chunk, lambda state=state: OnlineMiner.restore(state).feed)
            note = f"x {online / matcher:.1f} of the matcher, x {online / reading:.0f} of reading"
            rows.append(Row(f"matcher, {kind}", f"{chunk:,}", matcher))
            rows.append(Row(f"online miner, {kind}", f"{chunk:,}", online, note))
    return rows


def mining_rows() -> list[tuple[str, float, float]]:
    """Milliseconds to mine windows of an exact and of a noisy stream."""
    exact, noisy = stream(WINDOWS[-1]), stream(WINDOWS[-1], noise=0.5)
    cost = [[best_ns(lambda s=s[:n]: find_loop(s), 1, runs=3) / 1e6 for s in (exact, noisy)] for n in WINDOWS]
    return [(f"{n:,}", *both) for n, both in zip(WINDOWS, cost, strict=True)]


def run(console: Console, quick: bool = False) -> None:
    """Print both tables."""
    engine = "numpy fallbacks" if native.library() is None else "C library"
    shown = Table("what", "chunk", "ns/symbol", "M symbols/s", "note", title=f"Following a stream ({engine})")
    for row in following_rows(10**6 if quick or native.library() is None else 10**7):
        shown.add_row(*row.cells())
    console.print(shown)
    mined = Table("window", "exact, ms", "half of it noisy, ms", title=f"Mining a window ({engine})")
    for window, *cost in mining_rows():
        mined.add_row(window, *(f"{one:.1f}" for one in cost))
    console.print(mined)


if __name__ == "__main__":
    from rich.console import Console

    run(Console(width=120))
