"""Analysis of a job's ranks on many machines: a rank is examined where it is read, and only the result is sent back.

The machines are workers of Dask distributed. `connection` finds or starts them, `tasks` defines what each does with
the files given to it, `mapping` sends the tasks out and merges the results into one analysis. That analysis is the same
as that of `deepprof.analyze`, because both use `deepprof.analysis.pipeline` and `deepprof.analysis.merging`.
"""

from __future__ import annotations

from deepprof.cluster.connection import connect
from deepprof.cluster.mapping import analyze_on

__all__ = ["analyze_on", "connect"]
