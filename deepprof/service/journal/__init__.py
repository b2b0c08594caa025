"""What was accepted, on disk before it is acknowledged: the truth that everything else is derived from."""

from deepprof.service.journal.frames import Frame, Kind, Place
from deepprof.service.journal.journal import Journal
from deepprof.service.journal.shelf import Damage, JournalError

__all__ = ["Damage", "Frame", "Journal", "JournalError", "Kind", "Place"]
