"""One rank's messages on disk, in order: the only queue between the agent and the daemon."""

from deepprof.agent.spool.budget import SpoolBudget
from deepprof.agent.spool.finding import find_spools
from deepprof.agent.spool.intake import SpoolIntake
from deepprof.agent.spool.reading import SpoolCursor, SpoolMessage
from deepprof.agent.spool.spool import Spool
from deepprof.agent.spool.spool_folder import SpoolError, make_root

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
