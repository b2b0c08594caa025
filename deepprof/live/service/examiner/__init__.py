"""Regular examination of jobs: the rules run over their latest raw records, and anomalies are captured."""

from deepprof.live.service.examiner.examiner import Examiner

__all__ = ["Examiner"]
