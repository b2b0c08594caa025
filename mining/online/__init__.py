"""The miner of a stream that is still running: reads integers, returns iterations as they are completed.

`miner` is the interface for callers, `loop_tracker` decides which loop is followed, `template_tracker` turns passes
into iterations.
"""

from deepprof.mining.online.miner import OnlineMiner
from deepprof.mining.online.progress import IterationBatch, LockedLoop, MinerCounts, MinerEvent

__all__ = ["IterationBatch", "LockedLoop", "MinerCounts", "MinerEvent", "OnlineMiner"]
