"""Turns one rank's records, batch by batch, into iterations: in bounded memory, saved and restored.

Decisions are made after fixed numbers of device events in time order, so that the iterations do not depend on how the
records are cut into batches, on timing, or on restarts.
"""

from deepprof.live.service.session.events import SessionEvent
from deepprof.live.service.session.limits import SessionLimits
from deepprof.live.service.session.rank_session import RankSession, SessionOutput

__all__ = ["RankSession", "SessionEvent", "SessionLimits", "SessionOutput"]
