"""The messages before and after a trace's batches: Hello names the sender, End counts what was left out."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from deepprof.collectors.errors import escaped
from deepprof.collectors.trace import Trace
from deepprof.live.wire.checking import check_hello
from deepprof.live.wire.limits import LIMITS, WireLimits
from deepprof.live.wire.sent_tables import as_sent
from deepprof.v1 import records_pb2 as pb

CLOCKS: Mapping[str, pb.Clock] = {"unix": pb.CLOCK_UNIX, "session": pb.CLOCK_SESSION}
OTHER = "other"


def make_hello(  # noqa: PLR0913  options by name
    trace: Trace,
    job: str,
    *,
    rank: int | None = None,
    collector: str | None = None,
    host: str = "",
    limits: WireLimits = LIMITS,
) -> pb.Hello:
    """Return the message that announces `trace` as a rank of `job`.

    `rank` replaces the trace's own rank; without either it is 0 and marked as unknown. `collector` names this
    transmission; where it is None a new random name is made. Texts that are too long are cut. Raises `WireError` for a
    job, rank or collector that no daemon accepts.
    """
    number = trace.rank if rank is None else rank
    world = trace.world_size or 0
    hello = pb.Hello(
        job=_encodable(job),
        rank=_in_uint32(number or 0),
        rank_known=number is not None,
        world_size=world if (number or 0) < world <= limits.rank + 1 else 0,
        collector=_encodable(collector or f"send-{secrets.token_hex(8)}"),
        clock=CLOCKS[trace.clock],
        epoch_unix_ns=trace.epoch_ns,
        host=escaped(_encodable(host))[: limits.host_chars],
        format=escaped(trace.format)[: limits.format_chars],
        source=_encodable(trace.path)[: limits.source_chars],
        notes=[_encodable(note)[: limits.note_chars] for note in trace.notes[: limits.notes]],
    )
    check_hello(hello, limits)
    return hello


def _in_uint32(number: int) -> int:
    """Return a rank's number, or the greatest uint32 for one that no message can hold, which `check_hello` refuses."""
    return number if 0 <= number < 2**32 else 2**32 - 1


def _encodable(text: str) -> str:
    """Return `text` without lone surrogates, which no message can hold."""
    return text.encode("utf-8", "replace").decode()


def make_end(trace: Trace, *, limits: WireLimits = LIMITS) -> pb.End:
    """Return the message that ends `trace`, with the dropped and flagged counts of its accounting as it is sent."""
    counts = as_sent(trace).accounting
    return pb.End(dropped=_fit(counts.dropped, limits), flagged=_fit(counts.flagged, limits))


def _fit(counts: Mapping[str, int], limits: WireLimits) -> dict[str, int]:
    """Return counts by reason, with at most as many reasons and characters as a message may have; their sum is kept."""
    fitted: dict[str, int] = {}
    for reason, count in counts.items():
        word = escaped(_encodable(reason))[: limits.reason_chars]
        word = word if word in fitted or len(fitted) < limits.reasons - 1 or len(counts) <= limits.reasons else OTHER
        fitted[word] = fitted.get(word, 0) + count
    return fitted
