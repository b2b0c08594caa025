"""DeepProf: what one training iteration is, where its time goes, and why the GPU waits.

The Python API is `read` (a file as a `Trace`), `read_job` (all ranks of a job), `analyze` (a `Trace` or several as an
`Analysis`), `select` (a part of traces), `connect` (the daemon that watches jobs), `attach` (sends a torch.profiler's
cycles to the daemon) and `range`, `start` and `stop` (name a part of a training program); the command line is a thin
layer over it. Names are loaded on first use, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deepprof.analysis import Analysis, Loop, analyze
    from deepprof.analysis.selection import select
    from deepprof.collectors.errors import DeepProfError, TraceError, UsageError
    from deepprof.collectors.importers import read
    from deepprof.collectors.live.program_ranges import range as range
    from deepprof.collectors.live.program_ranges import start, stop
    from deepprof.collectors.live.torch_profiler import attach
    from deepprof.collectors.store import Store, open_store
    from deepprof.collectors.trace import Trace
    from deepprof.comparison import Comparison, compare
    from deepprof.diagnosis.finding import Finding
    from deepprof.job import read_job
    from deepprof.live.client.connection import connect

    __version__: str

__all__ = [  # and `range`, which `from deepprof import *` shall not put over Python's own
    "Analysis",
    "Comparison",
    "DeepProfError",
    "Finding",
    "Loop",
    "Store",
    "Trace",
    "TraceError",
    "UsageError",
    "__version__",
    "analyze",
    "attach",
    "compare",
    "connect",
    "open_store",
    "read",
    "read_job",
    "select",
    "start",
    "stop",
]

HOMES = {
    "Analysis": "deepprof.analysis",
    "Comparison": "deepprof.comparison",
    "DeepProfError": "deepprof.collectors.errors",
    "Finding": "deepprof.diagnosis.finding",
    "Loop": "deepprof.metrics.loop",
    "Store": "deepprof.collectors.store",
    "Trace": "deepprof.collectors.trace",
    "TraceError": "deepprof.collectors.errors",
    "UsageError": "deepprof.collectors.errors",
    "analyze": "deepprof.analysis",
    "attach": "deepprof.collectors.live.torch_profiler",
    "compare": "deepprof.comparison",
    "connect": "deepprof.live.client.connection",
    "open_store": "deepprof.collectors.store",
    "range": "deepprof.collectors.live.program_ranges",
    "read": "deepprof.collectors.importers",
    "read_job": "deepprof.job",
    "select": "deepprof.analysis.selection",
    "start": "deepprof.collectors.live.program_ranges",
    "stop": "deepprof.collectors.live.program_ranges",
}


def __dir__() -> list[str]:
    """Return the public names, also those that were not used yet: what a shell completes."""
    return sorted({*HOMES, *__all__})


def __getattr__(name: str) -> object:
    """Load a public name from its module on first use."""
    from importlib import import_module

    if name == "__version__":
        from deepprof.version import read_version

        return read_version()
    if name not in HOMES:
        raise AttributeError(f"module 'deepprof' has no attribute {name!r}")
    return getattr(import_module(HOMES[name]), name)
