"""Find loops in sequences of integers: the suffix tree and the iteration miner (layer 1; independent of traces).

Usable alone on any sequence of non-negative integers:

>>> from deepprof.mining import find_loop
>>> layer, head, optimizer = [1, 2, 3, 4] * 12, [5, 6, 7], [8, 9] * 10
>>> mined = find_loop((layer + head + optimizer) * 5)
>>> mined.loop.period, len(mined.loop.iterations.first)
(71, 5)

`find_loop` finds one loop without a given count, `find_loops` all loops of a program, `OnlineMiner` the iterations of a
stream that is still running. `mine_with_counts` is the paper's method, with the count given. All of them are built on
`SuffixTree` and `Matcher`: C code (`native.c`, loaded by ctypes), or numpy where it was not compiled.

The stages, in order: `levels`, `template`, `candidates`, `choice`, `cycles`, `acceptance` and `search` find which
window shows which iteration. `bounds` and `votes`, then `phase`, `confidence` and `loops`, determine where the
iteration begins, how certain that is, and how the whole sequence matches. `heads` and `iterations` turn passes into
iterations. `candidates` and `several` separate cycles, and programs of several loops. `nesting` finds what
repeats inside an iteration.
"""

from typing import TYPE_CHECKING

from deepprof.mining.cycles import LoopCycle
from deepprof.mining.evidence import Evidence, Family
from deepprof.mining.iterations import Iterations
from deepprof.mining.loops import MinedLoop, MiningResult, find_loop
from deepprof.mining.matching import Matcher, Matches, match
from deepprof.mining.paper import PaperLoop, Pattern, mine_with_counts
from deepprof.mining.several import find_loops
from deepprof.mining.suffix_tree import SuffixTree

if TYPE_CHECKING:
    from deepprof.mining.online import IterationBatch, LockedLoop, MinerCounts, MinerEvent, OnlineMiner

__all__ = [
    "Evidence",
    "Family",
    "IterationBatch",
    "Iterations",
    "LockedLoop",
    "LoopCycle",
    "Matcher",
    "Matches",
    "MinedLoop",
    "MinerCounts",
    "MinerEvent",
    "MiningResult",
    "OnlineMiner",
    "PaperLoop",
    "Pattern",
    "SuffixTree",
    "find_loop",
    "find_loops",
    "match",
    "mine_with_counts",
]


def __getattr__(name: str) -> object:
    """Load what follows a running stream on first use: a recorded sequence needs none of it."""
    if name not in __all__:
        raise AttributeError(f"module 'deepprof.mining' has no attribute {name!r}")
    from deepprof.mining import online

    return getattr(online, name)
