"""From the parts of all ranks to the analysis of their job: what only several ranks together show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain

import polars as pl

from deepprof.analysis.part import RankPart
from deepprof.collectors.errors import UsageError
from deepprof.collectors.trace import Trace
from deepprof.diagnosis.causes import rank
from deepprof.diagnosis.device_means import group_loops, read_device
from deepprof.diagnosis.diagnosed_job import add_up
from deepprof.diagnosis.engine import diagnose_ranks
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.ledger import settle
from deepprof.diagnosis.on_cpu import say_for_cpu
from deepprof.diagnosis.rules.communication_bound import among_all
from deepprof.metrics.loop import Loop
from deepprof.metrics.options import AnalysisOptions
from deepprof.metrics.ranks.comparison import RankComparison, compare_ranks
from deepprof.metrics.sharing.devices import measure_device
from deepprof.results.analysis_result import AnalysisResult


class Analysis(AnalysisResult, frozen=True):
    """Everything DeepProf has about one job: what renderers, the service and the Python API share.

    `no_loop_reason` states why there is no loop at all, `missing` why some main streams have none while others do.
    `traces`, `timelines` and what needs them are empty where other machines examined the ranks (`deepprof.cluster`).
    The schemas of its tables are in `deepprof.results.analysis_tables`.
    """

    def to_json(self) -> str:
        """Return the report `deepprof.report/1`, with all findings."""
        from deepprof.render.json import encode

        return encode(self, limit=None)


def check_job(numbers: Sequence[int | None], question: AnalysisOptions) -> None:
    """Raise `UsageError` for no rank, two traces of one rank, or an iteration count below 2."""
    if not numbers:
        raise UsageError("no trace given; name a file or a directory of ranks")
    twice = [number for number, times in Counter(number or 0 for number in numbers).items() if times > 1]
    if twice:
        raise UsageError(f"two traces of rank {twice[0]}; give each its own (deepprof.read_job numbers them)")
    if any(not isinstance(count, int) or count < 2 for count in question.counts):
        raise UsageError(f"iteration counts {list(question.counts)}: each must be a whole number of at least 2")


def merge(parts: Sequence[RankPart], question: AnalysisOptions, traces: Sequence[Trace] = ()) -> Analysis:
    """Return the analysis of a job from the parts of its ranks, in order; `traces` are the ranks', where available.

    Raises `UsageError` for a stream that no rank has.
    """
    streams = pl.concat(part.streams for part in parts)
    _check_stream(streams, question.stream)
    loops = tuple(loop for part in parts for loop in part.loops)
    measured = (*loops, *(step for part in parts for step in part.steps))
    reasons = [(part.rank, *why) for part in parts for why in part.reasons]
    compared, late = _compare(measured, parts)
    groups = [[read_device(loop) for loop in alike] for alike in group_loops(compared, measured)]
    shares = {(share.rank, share.device): share for part in parts for share in part.shares}
    return Analysis(
        traces=tuple(traces),
        recordings=tuple(part.recording for part in parts),
        summary=add_up(part.summary for part in parts),
        streams=streams,
        loops=loops,
        no_loop_reason=None if loops else "; ".join(dict.fromkeys(why for *_, why in reasons)),
        findings=settle(rank(_gather(parts, compared, late), groups), measured),
        missing=tuple(f"rank {number}{place}: no iteration found: {why}" for number, place, why in reasons if loops),
        timelines={(part.rank, device): each for part in parts for device, each in part.timelines.items()},
        breakdown=pl.concat(part.breakdown for part in parts),
        work_of_recordings=tuple(part.work for part in parts),
        ranks=compared,
        stretches=tuple(stretch for part in parts for stretch in part.stretches),
        steps=measured[len(loops) :],
        trees={part.rank: part.tree for part in parts if part.tree is not None},
        annotated={part.rank: part.annotation for part in parts if part.annotation is not None},
        sharing=tuple(measure_device(shared, shares) for shared in question.shared),
    )


def _gather(parts: Sequence[RankPart], compared: RankComparison | None, late: Sequence[Finding]) -> list[Finding]:
    found = list(chain.from_iterable((*(part.findings for part in parts), late)))
    if compared is not None and not compared.missing:
        found = [among_all(finding) for finding in found]
    return say_for_cpu(found) if all(part.recording.on_cpu for part in parts) else found


def _compare(loops: Sequence[Loop], parts: Sequence[RankPart]) -> tuple[RankComparison | None, list[Finding]]:
    """Return the comparison of the ranks, None where there is only one, and the findings on late ranks."""
    facts = [part.facts for part in parts if part.facts is not None]
    compared = compare_ranks(loops, facts)
    return compared, [] if compared is None else diagnose_ranks(compared, loops, facts)


def _check_stream(streams: pl.DataFrame, stream: tuple[int, int] | None) -> None:
    """Raise `UsageError` for a stream that runs no kernel on any rank."""
    busy = streams.filter(pl.col("kernels") > 0).select("device", "stream").unique().sort("device", "stream").rows()
    if stream is not None and stream not in busy:
        known = ", ".join(f"{device}:{number}" for device, number in busy[:12])
        raise UsageError(f"stream {stream[0]}:{stream[1]} runs no kernel; streams that do: {known or 'none'}")
