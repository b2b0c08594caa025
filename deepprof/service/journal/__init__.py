"""What was accepted, on disk before it is acknowledged: the truth that everything else is derived from."""

from deepprof.service.journal.frames import JournalFrame, JournalPlace, Kind
from deepprof.service.journal.journal import Journal
from deepprof.service.journal.segment_reader import JournalDamage, JournalError

__all__ = ["Journal", "JournalDamage", "JournalError", "JournalFrame", "JournalPlace", "Kind"]
