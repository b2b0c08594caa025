"""The miner's speed and memory next to peers, next to the paper's Algorithm 1, and as the input grows.

Times are nanoseconds per symbol, the best of a few runs in this process; what they are multiples of was measured in the
same run. Memory is the peak of its own process. The ratios travel between machines better than the figures do.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
from rich.table import Table

from deepprof.mining import find_loop, native, suffix_numpy
from deepprof.mining.anchors import plan_match
from deepprof.mining.matching import Matcher, match
from deepprof.mining.matching_numpy import NumpyEngine
from deepprof.mining.paper import match_approximately
from deepprof.mining.suffix_tree import SuffixTree, lcp_array, suffix_array

if TYPE_CHECKING:
    from rich.console import Console

Symbols: TypeAlias = npt.NDArray[np.uint16]

CHUNK = 4096
NOISE = 0.1  # of the iterations
STATUS = Path("/proc/self/status")  # on Linux it shows the peak of a process; a child's rusage counts its parent in


@dataclass(frozen=True)
class Sizes:
    """How many symbols each part takes; the peers' size is what `suffix-trees` has the memory for (900 B a symbol)."""

    peers: int = 10**5
    array: tuple[int, ...] = (10**5, 10**6, 10**7)
    tree: tuple[int, ...] = (10**4, 10**5, 10**6, 10**7)
    matcher: int = 10**7
    growth: tuple[int, ...] = (10**4, 10**5, 10**6, 10**7, 10**8)
    memory: int = 10**7


FULL = Sizes()
QUICK = Sizes(10**4, (10**5,), (10**4, 10**5), 10**6, (10**4, 10**6), 10**6)
WITHOUT_LIBRARY = Sizes(10**4, (10**4,), (10**4, 10**5), 10**5, (10**4, 10**5), 10**5)


@dataclass(frozen=True)
class Row:
    what: str
    symbols: int
    figure: float
    note: str = ""
    unit: str = "ns"

    def cells(self) -> tuple[str, str, str, str]:
        digits = 3 if self.figure < 1 else 2 if self.figure < 100 else 0
        return self.what, f"{self.symbols:,}", f"{self.figure:,.{digits}f} {self.unit}", self.note


def iteration(layers: int = 24, seed: int = 0) -> Symbols:
    """One training iteration: embedding, layers forward and backward, loss, and an optimizer of repeated groups."""
    random = np.random.default_rng(seed)
    shared = np.arange(12)

    def block(size: int, own: range) -> npt.NDArray[np.int64]:
        return random.choice(np.concatenate([shared, own]), size)

    forward, backward = block(13, range(12, 30)), block(24, range(30, 60))
    groups = np.tile(block(9, range(90, 100)), 6)
    parts = [block(7, range(60, 66)), *[forward] * layers, block(11, range(66, 76)), *[backward] * layers]
    return np.concatenate([*parts, block(5, range(76, 82)), groups]).astype(np.uint16)


def stream(length: int, noise: float = 0.0, seed: int = 0) -> Symbols:
    """Iterations one after the other; `noise` is the share of iterations hit by a few inserted or replaced symbols."""
    random = np.random.default_rng(seed + 1)
    clean = iteration(seed=seed)
    parts = [clean] * (length // clean.size + 1)
    for hit in np.flatnonzero(random.random(len(parts)) < noise).tolist():
        parts[hit] = _damaged(clean, random)
    return np.concatenate(parts)[:length]


def _damaged(clean: Symbols, random: np.random.Generator) -> Symbols:
    at, size = int(random.integers(0, clean.size - 1)), int(random.integers(1, 20))
    if random.random() < 0.5:
        return np.insert(clean, at, random.integers(100, 120, size).astype(np.uint16))
    replaced = clean.copy()
    replaced[at] = 120
    return replaced


def best_ns(work: Callable[[], object], symbols: int, runs: int | None = None) -> float:
    """Return the best of several runs: 3, or up to 60 of short ones, which are cold at first."""
    times = []
    for _ in range(runs or max(3, min(60, 6_000_000 // symbols))):
        begin = time.perf_counter_ns()
        work()
        times.append(time.perf_counter_ns() - begin)
    return min(times) / symbols


def times(figure: float, base: float, what: str) -> str:
    return f"x {figure / base:.1f} of {what}"


def tree_ns(length: int) -> float:
    symbols = stream(length, NOISE)
    return best_ns(lambda: SuffixTree.build(symbols).nodes(), length)


def settle() -> None:
    """Let the allocator see large arrays come and go, as in any process that has read a trace.

    Before, it hands the memory of smaller ones back to the system at once, and every run pays for all its pages anew:
    the row of its own process states how much that is.
    """
    for _ in range(2):
        np.empty(24 * 2**20, np.uint8).fill(1)


def array_rows(lengths: tuple[int, ...]) -> list[Row]:
    rows = []
    for length in lengths:
        symbols = stream(length, NOISE)
        ours = best_ns(lambda s=symbols: suffix_array(s), length)
        rows += [Row("suffix array", length, ours), divsufsort_row(symbols, ours)]
    return rows


def divsufsort_row(symbols: Symbols, ours: float) -> Row:
    """Return libdivsufsort on the same symbols as bytes: it is at its quickest there, and ours does not care."""
    what = "suffix array, pydivsufsort (PyPI, C)"
    if find_spec("pydivsufsort") is None:
        return Row(what, symbols.size, float("nan"), 'not here: pip install -e ".[bench]"')
    from pydivsufsort import divsufsort

    narrow = symbols.astype(np.uint8)
    if not np.array_equal(divsufsort(narrow), suffix_array(symbols)):
        raise AssertionError("two suffix arrays of the same symbols differ")
    theirs = best_ns(lambda: divsufsort(narrow), symbols.size)
    return Row(what, symbols.size, theirs, times(theirs, ours, "ours"))


def tree_part_rows(length: int) -> list[Row]:
    symbols = stream(length, NOISE)
    suffixes, tree = suffix_array(symbols), SuffixTree.build(symbols)
    return [
        Row("LCP array, suffixes checked", length, best_ns(lambda: lcp_array(symbols, suffixes), length)),
        Row("tree nodes", length, best_ns(tree.nodes, length)),
        Row("classes of 8-grams", length, best_ns(lambda: tree.classes(8), length)),
    ]


def tree_peer_rows(length: int, runs: int) -> list[Row]:
    from suffix_trees import STree

    symbols = stream(length, NOISE)
    word = "".join(map(chr, (symbols + 32).tolist()))

    def twin() -> None:
        suffix_numpy.nodes(suffix_numpy.lcp_array(symbols, suffix_numpy.suffix_array(symbols)))

    theirs = best_ns(lambda: STree.STree(word), length, runs)
    ours, fallback = tree_ns(length), best_ns(twin, length, runs)
    first = min(ask(f"first_tree_ns({length})") for _ in range(runs))
    return [
        Row("suffix tree (array, LCP, nodes)", length, ours),
        Row("suffix tree, the first in a process of its own", length, first, times(first, ours, "the others")),
        Row("suffix tree, numpy fallback", length, fallback, times(fallback, ours, "ours")),
        Row("suffix tree, suffix-trees (PyPI, Python)", length, theirs, times(theirs, ours, "ours")),
    ]


def growth_rows(what: str, measure: Callable[[int], float], lengths: tuple[int, ...]) -> list[Row]:
    figures = [measure(length) for length in lengths]
    notes = ["", *(times(figure, figures[0], "the shortest") for figure in figures[1:])]
    return [Row(what, *row) for row in zip(lengths, figures, notes, strict=True)]


def matcher_ns(length: int) -> float:
    template, symbols = iteration(), stream(length, NOISE)
    matcher = Matcher(template, locked=True)
    return best_ns(lambda: matcher.feed(symbols), length)


def matcher_rows(length: int) -> list[Row]:
    template, exact, noisy = iteration(), stream(length), stream(length, NOISE)
    other = exact.copy()
    reading = best_ns(lambda: np.bitwise_xor.reduce(exact), length)
    comparing = best_ns(lambda: bool((exact == other).all()), length)
    rows = [Row("reading the symbols (xor)", length, reading), Row("comparing two arrays", length, comparing)]
    for kind, symbols in (("exact", exact), (f"{NOISE:.0%} of iterations noisy", noisy)):
        batch = best_ns(lambda s=symbols: match(s, template), length, 9)
        chunks = best_ns(lambda s=symbols: feed_in_chunks(s, template), length, 9)
        rows.append(Row(f"matcher, batch, {kind}", length, batch, times(batch, reading, "reading")))
        rows.append(Row(f"matcher, chunks of {CHUNK}, {kind}", length, chunks, times(chunks, reading, "reading")))
    return [*rows, *slow_matcher_rows(template, noisy[: length // 10])]


def slow_matcher_rows(template: Symbols, noisy: Symbols) -> list[Row]:
    """Return what is not followed at the speed of memory; the same symbols for all but the second."""
    length, plan = noisy.size, plan_match(template, 64, 32, 8, 12)
    lost = np.random.default_rng(2).integers(0, 120, length).astype(np.uint16)
    ours = best_ns(lambda: match(noisy, template), length)
    twin = best_ns(lambda: NumpyEngine(plan).advance(noisy, final=True), length)
    paper = best_ns(lambda: match_approximately(noisy, template), length, runs=1)
    return [
        Row("matcher, batch, noisy", length, ours),
        Row("matcher, batch, nothing matches", length, best_ns(lambda: match(lost, template), length)),
        Row("matcher, numpy fallback, noisy", length, twin, times(twin, ours, "ours")),
        Row("Algorithm 1 of the paper, noisy", length, paper, times(paper, ours, "ours")),
    ]


def feed_in_chunks(symbols: Symbols, template: Symbols) -> None:
    matcher = Matcher(template)
    for start in range(0, symbols.size, CHUNK):
        matcher.feed(symbols[start : start + CHUNK])


def detection_rows(length: int) -> list[Row]:
    rows = []
    for kind, noise in (("exact", 0.0), ("noisy", NOISE)):
        symbols = stream(length, noise)
        figure = best_ns(lambda s=symbols: find_loop(s), length, runs=5)
        rows.append(Row(f"whole detection (find_loop), {kind}", length, figure, f"{figure * length / 1e6:.1f} ms"))
    return rows


def first_tree_ns(length: int) -> float:
    native.library()
    symbols = stream(length, NOISE)
    return best_ns(lambda: SuffixTree.build(symbols).nodes(), length, runs=1)


MEMORY: dict[str, Callable[[Symbols], object]] = {
    "suffix tree": SuffixTree.build,
    "suffix tree with its nodes": lambda symbols: SuffixTree.build(symbols).nodes(),
    "matcher, batch": lambda symbols: match(symbols, iteration()),
    "whole detection": find_loop,
}


def memory_rows(length: int) -> list[Row]:
    if not STATUS.exists():
        return []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "symbols.npy"
        np.save(path, stream(length, NOISE))
        peaks = {what: ask(f"peak_bytes({what!r}, {str(path)!r})") for what in MEMORY}
    return [
        Row(f"memory beyond the input: {what}", length, peak / length, f"{peak / 2**20:.1f} MiB", "B")
        for what, peak in peaks.items()
    ]


def peak_bytes(what: str, path: str) -> int:
    """Return how much this process, with the symbols read and all code loaded, grows at most."""
    symbols = np.load(path)
    MEMORY[what](symbols[: 4 * iteration().size])
    before = highest_bytes()
    MEMORY[what](symbols)
    return highest_bytes() - before


def highest_bytes() -> int:
    return next(int(line.split()[1]) for line in STATUS.read_text().splitlines() if line.startswith("VmHWM")) * 1024


def ask(call: str) -> float:
    """Return what a function of this module states in its own process."""
    program = f"from benchmarks import mining; print(mining.{call})"
    return float(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout)


def parts(sizes: Sizes, quick: bool = False) -> list[list[Row]]:
    """Return all figures, related ones together."""
    settle()
    return [
        array_rows(sizes.array),
        tree_peer_rows(sizes.peers, runs=1 if quick else 3),
        tree_part_rows(sizes.peers),
        growth_rows("suffix tree", tree_ns, sizes.tree),
        matcher_rows(sizes.matcher),
        growth_rows("matcher, one feed, noisy", matcher_ns, sizes.growth),
        detection_rows(sizes.matcher),
        memory_rows(sizes.memory),
    ]


def run(console: Console, quick: bool = False) -> None:
    """Print the figures."""
    native_here = native.library() is not None
    sizes = WITHOUT_LIBRARY if not native_here else QUICK if quick else FULL
    title = f"Mining ({'C library' if native_here else 'numpy fallbacks'})"
    shown = Table("what", "symbols", "per symbol", "note", title=title)
    for rows in parts(sizes, quick):
        for row in rows:
            shown.add_row(*row.cells())
        shown.add_section()
    console.print(shown)
