"""One rank's messages on disk, in order: the only queue between the agent and the daemon."""

from deepprof.live.agent.spool.intake import SpoolIntake
from deepprof.live.agent.spool.reading import SpoolCursor, SpoolMessage
from deepprof.live.agent.spool.spool import Spool, SpoolBudget, find_spools
from deepprof.live.agent.spool.spool_folder import SpoolError, make_root

__all__ = [
    "Spool",
    "SpoolBudget",
    "SpoolCursor",
    "SpoolError",
    "SpoolIntake",
    "SpoolMessage",
    "find_spools",
    "make_root",
]
