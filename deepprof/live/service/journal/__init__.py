"""What was accepted, on disk before it is acknowledged: the truth that everything else is derived from.

`frames` lie in `segments`; `segment_reader` reads them, `journal` writes them.
"""

from deepprof.live.service.journal.frames import JournalFrame, JournalPlace, Kind
from deepprof.live.service.journal.journal import Journal
from deepprof.live.service.journal.segment_reader import JournalDamage, JournalError

__all__ = ["Journal", "JournalDamage", "JournalError", "JournalFrame", "JournalPlace", "Kind"]
