"""The miner of a stream that is still running: integers in, iterations out as they are completed."""

from deepprof.mining.online.miner import OnlineMiner
from deepprof.mining.online.progress import Batch, Counts, Event, Lock

__all__ = ["Batch", "Counts", "Event", "Lock", "OnlineMiner"]
