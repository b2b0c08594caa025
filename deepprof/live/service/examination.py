"""The process that examines raw records apart from the daemon, so that rules may be slow and a bug costs one report.

Run as a module: it reads length-prefixed `ReadWindowResponse` messages, perhaps `END_OF_MESSAGES` and the histories of
calling contexts, and writes one `ExaminationResult`, with the documents of the page if `--documents` states how many
bytes they may have. With `--keep FOLDER` it writes the records to a store there instead, cut to the time between
`--from` and `--to`.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from deepprof.diagnosis import Severity
from deepprof.live.wire.figures import LoopFigures, StageFigures

if TYPE_CHECKING:
    import polars as pl

    from deepprof.analysis import Analysis
    from deepprof.collectors.trace import Trace
    from deepprof.diagnosis.finding import Finding
    from deepprof.metrics.contexts.history import ContextsOfRank
    from deepprof.metrics.loop import Loop
    from deepprof.v1 import query_pb2 as wire

LENGTH = 4  # bytes, little endian, before each message
END_OF_MESSAGES = bytes(LENGTH)  # no message is empty
CPU_S = 600
UNKNOWN_STAGE = "unknown"


class FindingSummary(msgspec.Struct, frozen=True):
    """A finding of a rule, in short."""

    rule: str
    severity: Severity
    title: str
    summary: str
    advice: str
    rank: int | None
    confidence: float
    headroom_ns: int | None = None  # of an iteration


class _PackedHistory(msgspec.Struct, frozen=True):
    """What a rank has sent of its contexts, its tables as Arrow IPC streams."""

    job: str
    rank: int
    nodes: bytes
    sums: bytes


class FoundLoop(msgspec.Struct, frozen=True):
    """A loop as it is shown, without its iterations; `number` is the value of their column `loop`."""

    device: int
    number: int
    period: int
    confidence: float
    evidence: str
    boundary_source: str


class ExaminationResult(msgspec.Struct, frozen=True):
    """The result of an examination: the report (JSON), findings, loops, and the iterations as an Arrow IPC stream.

    `stages` has the known stages by rank, for the ranks whose records show them. `documents` are those of the page, or
    `documents_problem` states why there are none.
    """

    report: str
    findings: list[FindingSummary]
    figures: list[LoopFigures]
    iterations: bytes
    loops: list[FoundLoop] = []
    stages: dict[int, tuple[StageFigures, ...]] = {}
    documents: dict[str, bytes] = {}
    documents_problem: str = ""


def main(argv: Sequence[str] | None = None) -> int:
    """Examine the records that come in on stdin."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=int, required=True, help="bytes that the process may take")
    parser.add_argument("--documents", type=int, default=0, help="bytes that the documents of the page may have")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--from", dest="start", type=int)
    parser.add_argument("--to", dest="end", type=int)
    args = parser.parse_args(argv)
    _limit_resources(args.data)
    traces = _assemble(_read_messages(sys.stdin.buffer))
    histories = _read_histories(sys.stdin.buffer)
    if args.keep is not None:
        _keep(traces, args.keep, (args.start, args.end))
    else:
        sys.stdout.buffer.write(msgspec.msgpack.encode(_examine(traces, args.documents, histories)))
    return 0


def _limit_resources(nbytes: int) -> None:
    """Bound memory and CPU time, and give other processes priority."""
    import os
    import resource

    os.nice(10)
    for limit, value in ((resource.RLIMIT_DATA, nbytes), (resource.RLIMIT_CPU, CPU_S), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(limit, (value, value))


def _read_messages(stream: BinaryIO) -> Iterator[wire.ReadWindowResponse]:
    from deepprof.v1 import query_pb2 as wire

    while (head := stream.read(LENGTH)) and head != END_OF_MESSAGES:
        yield wire.ReadWindowResponse.FromString(stream.read(int.from_bytes(head, "little")))


def _read_histories(stream: BinaryIO) -> list[ContextsOfRank]:
    import polars as pl

    from deepprof.metrics.contexts.history import ContextsOfRank

    packed = msgspec.msgpack.decode(stream.read() or msgspec.msgpack.encode([]), type=list[_PackedHistory])
    return [
        ContextsOfRank(
            each.job, each.rank, *(pl.read_ipc_stream(io.BytesIO(table)) for table in (each.nodes, each.sums))
        )
        for each in packed
    ]


def pack_history(history: ContextsOfRank) -> _PackedHistory:
    """Return a history as the process reads it."""
    nodes, sums = io.BytesIO(), io.BytesIO()
    history.nodes.write_ipc_stream(nodes)
    history.sums.write_ipc_stream(sums)
    return _PackedHistory(history.job, history.rank, nodes.getvalue(), sums.getvalue())


def _assemble(messages: Iterator[wire.ReadWindowResponse]) -> list[Trace]:
    """Return the traces of the ranks, whose messages come one rank after the other."""
    from deepprof.live.wire.assembly import assemble_all
    from deepprof.live.wire.limits import WIDEST

    return assemble_all(messages, WIDEST)


def _examine(traces: list[Trace], documents_nbytes: int, histories: Sequence[ContextsOfRank] = ()) -> ExaminationResult:
    """Analyse the ranks of a job; a single rank keeps its own clock. What the rules find in histories comes last."""
    from deepprof.analysis import analyze
    from deepprof.diagnosis.engine import diagnose_history
    from deepprof.job.alignment import align
    from deepprof.job.ranks import number_ranks

    analysis = analyze(align(number_ranks(traces)))
    documents, problem = _write_documents(analysis, documents_nbytes) if documents_nbytes else ({}, "")
    return ExaminationResult(
        report=analysis.to_json(),
        findings=[
            *map(_summarize, analysis.findings),
            *(_summarize(f) for each in histories for f in diagnose_history(each)),
        ],
        figures=[_figures_of(number, loop) for number, loop in enumerate(analysis.loops)],
        iterations=_iterations_of(analysis),
        loops=[
            FoundLoop(loop.device, number, loop.period, loop.confidence, loop.evidence, loop.boundary_source)
            for number, loop in enumerate(analysis.loops)
        ],
        stages=find_stages(analysis.loops),
        documents=documents,
        documents_problem=problem,
    )


def _summarize(found: Finding) -> FindingSummary:
    return FindingSummary(
        rule=found.rule,
        severity=found.severity,
        title=found.title,
        summary=found.summary,
        advice=found.advice,
        rank=found.rank,
        confidence=found.confidence,
        headroom_ns=found.headroom_ns_per_iteration,
    )


def _write_documents(analysis: Analysis, most_nbytes: int) -> tuple[dict[str, bytes], str]:
    """Return the documents of the page that fit, and why there are none: a bug in them shall not cost the report."""
    try:
        from deepprof.web.package import write_documents

        return {**write_documents(analysis, most_nbytes=most_nbytes)}, ""
    except Exception as error:
        return {}, f"{type(error).__name__}: {error}"


def _figures_of(number: int, loop: Loop) -> LoopFigures:
    """Return the figures of one loop: those that the protocol has."""
    spread = loop.metrics.iteration_ns
    known: dict[str, Any] = {
        **loop.place,
        **loop.metrics.values,
        "loop": number,
        "iterations": loop.usual.height,
        "avg_size_nbytes": loop.metrics.avg_size_bytes,
        "median_iteration_ns": spread.median if spread else None,
        "p5_iteration_ns": spread.p5 if spread else None,
        "p95_iteration_ns": spread.p95 if spread else None,
    }
    return LoopFigures(**{each.name: known[each.name] for each in fields(LoopFigures)})


def find_stages(loops: Iterable[Loop]) -> dict[int, tuple[StageFigures, ...]]:
    """Return the known stages of every rank in the longest of its loops; ranks without any are left out.

    The longest is the one whose complete iterations use the most time together.
    """
    longest: dict[int, Loop] = {}
    for loop in sorted(loops, key=lambda loop: int(loop.usual["iteration_ns"].sum()), reverse=True):
        longest.setdefault(loop.rank, loop)
    found = {rank: _stages_of(loop) for rank, loop in longest.items()}
    return {rank: stages for rank, stages in sorted(found.items()) if stages}


def _stages_of(loop: Loop) -> tuple[StageFigures, ...]:
    """Return the known stages of a loop, in their order."""
    if loop.anatomy is None or not loop.usual.height:
        return ()
    rows = loop.anatomy.stages.iter_rows(named=True)
    return tuple(_figures_of_stage(row) for row in rows if row["stage"] != UNKNOWN_STAGE)


def _figures_of_stage(row: Mapping[str, Any]) -> StageFigures:
    """Return the figures of a row of `STAGES_IN_LOOP`."""
    return StageFigures(
        stage=row["stage"],
        busy_ns=round(row["mean_busy_ns"]),
        idle_ns=round(row["mean_idle_ns"]),
        host_ns=None if row["mean_host_ns"] is None else round(row["mean_host_ns"]),
        confidence_ratio=row["confidence"],
    )


def _iterations_of(analysis: Analysis) -> bytes:
    """Return the iterations with the columns of the history, as an Arrow IPC stream."""
    from deepprof.live.service.views import HISTORY

    rows: pl.DataFrame = analysis.iterations.select(HISTORY.names()).cast(HISTORY)
    buffer = io.BytesIO()
    rows.write_ipc_stream(buffer)
    return buffer.getvalue()


def _keep(traces: list[Trace], folder: Path, within: tuple[int | None, int | None]) -> None:
    """Write the ranks to a store, cut to the range of time `within`."""
    from deepprof.collectors.store import replace_store, write_index
    from deepprof.collectors.store.rank import write_rank
    from deepprof.collectors.time_range import cut

    with replace_store(folder) as part:
        for trace in traces:
            rows = trace if within == (None, None) else cut(trace, *within)
            write_rank(rows, part / f"rank={trace.rank or 0}")
        write_index(part, [trace.rank or 0 for trace in traces])


if __name__ == "__main__":
    sys.exit(main())
