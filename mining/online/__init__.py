"""The miner of a stream that is still running: integers in, iterations out as they are completed.

`miner` is what callers use, `loop_tracker` decides which loop is followed, `template_tracker` makes iterations of
passes.
"""

from deepprof.mining.online.miner import OnlineMiner
from deepprof.mining.online.progress import IterationBatch, LockedLoop, MinerCounts, MinerEvent

__all__ = ["IterationBatch", "LockedLoop", "MinerCounts", "MinerEvent", "OnlineMiner"]
