"""The journal: accepted messages, on disk before they are acknowledged; all other data is derived from it.

`segments` has their layout, `journal` writes and reads them, `journal_checks` repairs them.
"""

from deepprof.live.service.journal.journal import Journal, JournalError
from deepprof.live.service.journal.segments import JournalFrame, JournalPlace, Kind

__all__ = ["Journal", "JournalError", "JournalFrame", "JournalPlace", "Kind"]
