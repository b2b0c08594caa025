"""The miner's speed: suffix tree, matcher, and the paper's Algorithm 1, beside the time to read the symbols once.

Every figure is nanoseconds per symbol, the best of a few runs in this process; the ratios travel between machines
better than the figures do.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
from rich.table import Table

from deepprof.mining import native, suffix_numpy
from deepprof.mining.anchors import plan_match
from deepprof.mining.matching import Matcher, match
from deepprof.mining.matching_numpy import NumpyEngine
from deepprof.mining.paper import match_approximately
from deepprof.mining.suffix_tree import SuffixTree, lcp_array, suffix_array

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

Symbols: TypeAlias = npt.NDArray[np.uint16]

CHUNK = 4096


@dataclass(frozen=True)
class Row:
    what: str
    symbols: int
    ns_per_symbol: float
    note: str = ""

    def cells(self) -> tuple[str, str, str, str]:
        return self.what, f"{self.symbols:,}", f"{self.ns_per_symbol:,.3f}", self.note


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
    """Return the best of several runs: 3, or up to 30 of short ones, which are cold at first."""
    times = []
    for _ in range(runs or max(3, min(30, 3_000_000 // symbols))):
        begin = time.perf_counter_ns()
        work()
        times.append(time.perf_counter_ns() - begin)
    return min(times) / symbols


def suffix_tree_rows(lengths: list[int]) -> list[Row]:
    rows, totals = [], []
    for length in lengths:
        symbols = stream(length, noise=0.1)
        suffixes, tree = suffix_array(symbols), SuffixTree.build(symbols)
        parts = {
            "suffix array": best_ns(lambda s=symbols: suffix_array(s), length),
            "LCP array": best_ns(lambda s=symbols, a=suffixes: lcp_array(s, a), length),
            "tree nodes": best_ns(tree.nodes, length),
            "classes of 8-grams": best_ns(lambda t=tree: t.classes(8), length),
        }
        totals.append(best_ns(lambda s=symbols: SuffixTree.build(s).nodes(), length))
        rows += [Row(what, length, figure) for what, figure in parts.items()]
        rows.append(
            Row("suffix tree, all of it", length, totals[-1], f"x {totals[-1] / totals[0]:.2f} of the shortest")
        )
    return rows


def suffix_tree_peer_rows(length: int, ours: float) -> list[Row]:
    from suffix_trees import STree

    symbols = stream(length, noise=0.1)
    word = "".join(map(chr, (symbols + 32).tolist()))

    def twin() -> None:
        suffix_numpy.nodes(suffix_numpy.lcp_array(symbols, suffix_numpy.suffix_array(symbols)))

    theirs = best_ns(lambda: STree.STree(word), length, runs=1)
    fallback = best_ns(twin, length, runs=1)
    return [
        Row("suffix tree, numpy twin", length, fallback, f"x {fallback / ours:.0f} of ours"),
        Row("suffix tree, suffix-trees (PyPI)", length, theirs, f"x {theirs / ours:.0f} of ours"),
    ]


def matcher_rows(length: int) -> list[Row]:
    template, exact, noisy = iteration(), stream(length), stream(length, noise=0.1)
    other = exact.copy()
    reading = best_ns(lambda: np.bitwise_xor.reduce(exact), length)
    comparing = best_ns(lambda: bool((exact == other).all()), length)
    rows = [Row("reading the symbols (xor)", length, reading), Row("comparing two arrays", length, comparing)]
    for kind, symbols in (("exact", exact), ("10 % of iterations noisy", noisy)):
        batch = best_ns(lambda s=symbols: match(s, template), length)
        chunks = best_ns(lambda s=symbols: feed_in_chunks(s, template), length)
        rows.append(Row(f"matcher, batch, {kind}", length, batch, f"x {batch / reading:.1f} of reading"))
        rows.append(Row(f"matcher, chunks of {CHUNK}, {kind}", length, chunks, f"x {chunks / reading:.1f} of reading"))
    return [*rows, *_slow_matcher_rows(template, noisy, length // 10)]


def _slow_matcher_rows(template: Symbols, noisy: Symbols, length: int) -> list[Row]:
    part = noisy[:length]
    lost = np.random.default_rng(2).integers(0, 120, length).astype(np.uint16)
    plan = plan_match(template, 64, 32, 8, 12)
    twin = best_ns(lambda: NumpyEngine(plan).advance(part, final=True), length)
    paper = best_ns(lambda: match_approximately(part, template), length, runs=1)
    return [
        Row("matcher, batch, nothing matches", length, best_ns(lambda: match(lost, template), length)),
        Row("matcher, numpy twin, noisy", length, twin),
        Row("Algorithm 1 of the paper, noisy", length, paper),
    ]


def feed_in_chunks(symbols: Symbols, template: Symbols) -> None:
    matcher = Matcher(template)
    for start in range(0, symbols.size, CHUNK):
        matcher.feed(symbols[start : start + CHUNK])


def table(quick: bool = False) -> list[Row]:
    """All figures; `quick` stops at 10^6 symbols, and so many are far too many without the C library."""
    lengths = [10**5] if native.library() is None else [10**5, 10**6, 10**7][: 2 if quick else 3]
    rows = suffix_tree_rows(lengths)
    ours = next(row.ns_per_symbol for row in rows if row.what.startswith("suffix tree"))
    return [*rows, *suffix_tree_peer_rows(lengths[0], ours), *matcher_rows(lengths[-1])]


def run(console: Console, quick: bool = False) -> None:
    """Print the figures."""
    engine = "numpy twins" if native.library() is None else "C library"
    shown = Table("what", "symbols", "ns/symbol", "note", title=f"Mining ({engine})")
    for row in table(quick):
        shown.add_row(*row.cells())
    console.print(shown)
