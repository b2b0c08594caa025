"""The pipeline: trace → streams → loops → metrics → findings, rank by rank (`part`), then over ranks (`merging`).

`merging` defines `Analysis`, which the service and the Python API share; `deepprof.results` what it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from deepprof.analysis.merging import Analysis, check_job, merge
from deepprof.analysis.pipeline import examine
from deepprof.collectors.processes import split_all
from deepprof.collectors.trace import Trace
from deepprof.diagnosis.diagnosed_job import TimeSummary
from deepprof.metrics.cost.roofs import DevicePeaks
from deepprof.metrics.cpu_fallback import stand_ins
from deepprof.metrics.loop import Agreement, Loop
from deepprof.metrics.operators import is_stand_in
from deepprof.metrics.options import AnalysisOptions
from deepprof.metrics.sharing.shared_places import find_shared, list_devices, read_shared
from deepprof.results.analysis_result import Recording
from deepprof.results.analysis_tables import BREAKDOWN, METRICS

__all__ = ["BREAKDOWN", "METRICS", "Agreement", "Analysis", "Loop", "Recording", "TimeSummary", "analyze"]


def analyze(
    traces: Trace | Sequence[Trace],
    *,
    counts: Sequence[int] = (),
    stream: tuple[int, int] | None = None,
    same_device: bool = False,
    peaks: DevicePeaks | None = None,
) -> Analysis:
    """Find the iterations of one job and diagnose them.

    `traces` are its ranks; in a trace that holds the work of several processes, each process is a rank. `counts` is
    the paper's mode: the iteration count, or one per loop of a program with several. `stream` names the main stream as
    (device, stream) instead of choosing it. `same_device` states that the traces were recorded on one machine, on the
    same device where each has only one; without it ranks share a device only if their traces show it. `peaks` are what
    the devices can do (`metrics.cost.peak_files.load_peaks`), in place of the vendors' figures. Parts that `select`
    made of iterations or layers have the loops of the whole, unless `counts` or `stream` are given. Raises `UsageError`
    for no trace, two traces of one rank, a count below 2, a stream that no trace has, or traces that cannot have shared
    a device."""
    recorded = separate((traces,) if isinstance(traces, Trace) else traces)
    given = stand_ins(recorded)
    shared = find_shared([list_devices(trace) for trace in given], same_device=same_device)
    several = read_shared(shared, given)
    question = AnalysisOptions(tuple(counts), stream, alone=len(given) < 2, shared=several, peaks=peaks)
    check_job([trace.rank for trace in given], question)
    examined = [examine(trace, question, before) for trace, before in zip(given, recorded, strict=True)]
    merged = merge([part for _, part in examined], question, [trace for trace, _ in examined])
    return replace(merged, recorded=_keep_recorded([trace for trace, _ in examined], recorded))


def _keep_recorded(traces: Sequence[Trace], recorded: Sequence[Trace]) -> Mapping[int, Trace]:
    """Return the traces with operands as they were read, by rank, where operators were made their kernels since.

    The operands of an operator that is a kernel are not in the trace any more.
    """
    pairs = zip(traces, recorded, strict=True)
    return {trace.rank or 0: before for trace, before in pairs if is_stand_in(trace) and before.operands.height}


def separate(traces: Sequence[Trace]) -> Sequence[Trace]:
    """Return the traces, those of several processes split; if any was split, all ranks are renumbered."""
    parts = split_all(traces)
    return traces if len(parts) == len(traces) else [replace(part, rank=rank) for rank, part in enumerate(parts)]
