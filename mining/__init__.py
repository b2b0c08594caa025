"""Integers in, loops out: the suffix tree and the iteration miner (floor 1; knows no trace).

Usable alone on any sequence of non-negative integers:

>>> from deepprof.mining import find_loop
>>> layer, head, optimizer = [1, 2, 3, 4] * 12, [5, 6, 7], [8, 9] * 10
>>> mined = find_loop((layer + head + optimizer) * 5)
>>> mined.loop.period, len(mined.loop.iterations.first)
(71, 5)

`find_loop` finds one loop without a count, `find_loops` all of a program, `OnlineMiner` the iterations of a stream that
is still running; `mine_with_counts` is the paper's way, with the count given. `SuffixTree` and `Matcher` are what all
are built of: C (`native.c`, loaded by ctypes), or numpy where it was not compiled.

The steps, in their order: `levels`, `template`, `candidates`, `choice`, `cycles`, `acceptance` and `search` find which
window shows which iteration; `bounds` and `votes`, then `phase`, `confidence` and `loops`, say where it begins, how
sure that is, and how the whole matches; `heads` and `iterations` make iterations of passes. `supercycles`, `regimes`
and `several` take cycles and programs of several loops apart; `nesting` finds what repeats inside an iteration.
"""

from deepprof.mining.cycles import LoopCycle
from deepprof.mining.evidence import Evidence, Family
from deepprof.mining.iterations import Iterations
from deepprof.mining.loops import MinedLoop, MiningResult, find_loop
from deepprof.mining.matching import Matcher, Matches, match
from deepprof.mining.online import IterationBatch, LockedLoop, MinerCounts, MinerEvent, OnlineMiner
from deepprof.mining.paper import PaperLoop, Pattern, mine_with_counts
from deepprof.mining.several import find_loops
from deepprof.mining.suffix_tree import SuffixTree

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
