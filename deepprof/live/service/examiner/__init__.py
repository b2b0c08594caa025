"""Who examines jobs now and then: the rules over their latest raw records, and what is kept of anomalies."""

from deepprof.live.service.examiner.examiner import Examiner

__all__ = ["Examiner"]
