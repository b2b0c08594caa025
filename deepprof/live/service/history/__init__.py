"""The history: data derived from the journal and kept for queries: iterations, sessions' states, small texts.

Iterations and states are in SQLite; old iterations are sealed to Parquet. The parts are `iteration_rows`, `sealing`,
`paging` and `retention`; `history` combines them.
"""

from deepprof.live.service.history.history import History
from deepprof.live.service.history.values import Checkpoint, JobSummary, RetentionResult, StoredSession

__all__ = ["Checkpoint", "History", "JobSummary", "RetentionResult", "StoredSession"]
