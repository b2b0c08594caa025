"""One rank's records, batch by batch, on their way to iterations: bounded, saved and restored.

Decisions are made at fixed numbers of device events in the order of time, so that any cutting, timing or restart gives
the same iterations.
"""

from deepprof.live.service.session.events import SessionEvent
from deepprof.live.service.session.limits import SessionLimits
from deepprof.live.service.session.rank_session import RankSession, SessionOutput

__all__ = ["RankSession", "SessionEvent", "SessionLimits", "SessionOutput"]
