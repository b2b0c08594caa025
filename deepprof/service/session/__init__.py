"""One rank's records, batch by batch, on their way to iterations: bounded, saved and restored."""

from deepprof.service.session.events import SessionEvent
from deepprof.service.session.limits import SessionLimits
from deepprof.service.session.session import Advance, RankSession

__all__ = ["Advance", "RankSession", "SessionEvent", "SessionLimits"]
