"""A daemon's raw window as the traces of a job: each rank is assembled, then numbered and aligned like files."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from deepprof.collectors.trace import Trace
from deepprof.job import number_ranks
from deepprof.job.alignment import align
from deepprof.job.part import Between, check_between, read_parts
from deepprof.live.client.errors import DaemonError
from deepprof.live.wire.addresses import DaemonAddress
from deepprof.live.wire.assembly import assemble_all
from deepprof.live.wire.limits import WIDEST
from deepprof.v1.query_pb2 import ReadWindowResponse


def read_traces(
    answers: Iterable[ReadWindowResponse], address: DaemonAddress, job: str, between: Between | None = None
) -> list[Trace]:
    """Return the ranks that the answers to `ReadWindow` contain, in the form that `deepprof.read_job` returns.

    `between` is a range of time, as there. Raises `DaemonError` for answers that do not make a trace.
    """
    if between is not None:
        check_between(between)
    try:
        traces = assemble_all(answers, WIDEST)
    except ValueError as error:
        raise DaemonError(address, f"sent records that cannot be read ({error})", "check its version") from error
    named = [trace if trace.path else replace(trace, path=job) for trace in traces]  # a live collector reads no file
    return align(number_ranks(named if between is None else read_parts(named, between)))
