"""The miner of a stream that is still running: integers in, iterations out as they are completed."""

from deepprof.mining.online.miner import OnlineMiner
from deepprof.mining.online.progress import IterationBatch, LockedLoop, MinerCounts, MinerEvent

__all__ = ["IterationBatch", "LockedLoop", "MinerCounts", "MinerEvent", "OnlineMiner"]
