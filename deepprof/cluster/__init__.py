"""A job's ranks looked at by many machines: each rank where it is read, and only what it shows of itself comes back.

The machines are workers of Dask distributed. `connection` finds or starts them, `tasks` is what each does with the
files given to it, `mapping` sends the tasks out and makes one analysis of what comes back: the same as
`deepprof.analyze` makes, for both go through `deepprof.analysis.part` and `deepprof.analysis.merging`.
"""

from __future__ import annotations

from deepprof.cluster.connection import connect
from deepprof.cluster.mapping import analyze_on

__all__ = ["analyze_on", "connect"]
