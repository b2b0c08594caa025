"""What was derived from the journal, kept for questions: iterations, sessions' states, small texts.

Iterations and states in SQLite, sealed to Parquet: `iteration_rows`, `sealing`, `paging`, `retention`, and `history`,
which holds them together.
"""

from deepprof.live.service.history.history import History
from deepprof.live.service.history.values import Checkpoint, JobSummary, RetentionResult, StoredSession

__all__ = ["Checkpoint", "History", "JobSummary", "RetentionResult", "StoredSession"]
