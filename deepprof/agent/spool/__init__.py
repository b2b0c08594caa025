"""One rank's messages on disk, in order: the only queue between the agent and the daemon."""

from deepprof.agent.spool.budget import Budget
from deepprof.agent.spool.finding import find_spools
from deepprof.agent.spool.folder import SpoolError, make_root
from deepprof.agent.spool.intake import Intake
from deepprof.agent.spool.reading import Cursor, Message
from deepprof.agent.spool.spool import Spool

__all__ = ["Budget", "Cursor", "Intake", "Message", "Spool", "SpoolError", "find_spools", "make_root"]
