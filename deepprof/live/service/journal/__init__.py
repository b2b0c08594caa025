"""The journal: accepted messages, on disk before they are acknowledged; all other data is derived from it.

`frames` are stored in `segments`; `segment_reader` reads them, `journal` writes them.
"""

from deepprof.live.service.journal.frames import JournalFrame, JournalPlace, Kind
from deepprof.live.service.journal.journal import Journal
from deepprof.live.service.journal.segment_reader import JournalDamage, JournalError

__all__ = ["Journal", "JournalDamage", "JournalError", "JournalFrame", "JournalPlace", "Kind"]
