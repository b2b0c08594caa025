"""The importer of XPlane profiles, `*.xplane.pb`: what JAX and TensorFlow write for TensorBoard."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
import polars as pl

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.assembly import Records, assemble
from deepprof.collectors.importers.files import read_bytes
from deepprof.collectors.importers.flags import Tally
from deepprof.collectors.importers.silence import count_starting, explain_silence
from deepprof.collectors.importers.value_columns import parse_integer
from deepprof.collectors.importers.xla.events import Profile
from deepprof.collectors.importers.xla.planes import Stats, XPlaneHeader, read_space
from deepprof.collectors.importers.xla.programs import HloPrograms, ProgramTables, attach_programs, write_unread
from deepprof.collectors.importers.xla.rules import DEVICE_PLANE, find_places, make_records
from deepprof.collectors.importers.xla.wire import ProtobufError, read_number
from deepprof.collectors.importers.xla.xplane_schema import load_schema
from deepprof.collectors.times import EARLIEST_UNIX_NS, TIME_LIMIT_NS
from deepprof.collectors.trace import DEVICES, Trace

SUFFIXES = (".xplane.pb", ".xplane.pb.gz")
PLANES_OF = b"/host:|/device:|/virtualdevice:|Task Environment|#Chip|Host CPUs|Syscalls"
NUMBER = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
START = re.compile(rb"\A(?:\x0a\x00)*\x0a%b(?:\x08%b)?\x12.(?:%b)" % (NUMBER, NUMBER, PLANES_OF), re.DOTALL)
REPLACED = b"\xef\xbf\xbd"  # what a text editor puts in the place of bytes that are no UTF-8
TASK = "Task Environment"
PLANES = 1000  # checked in a file that breaks off; no file has as many
SEVERAL = 3  # of a file's own messages, at most, are quoted
COPY_AGAIN = "copy or record it again"


class XPlane:
    """Reads the profiles of JAX and TensorFlow (see `read`)."""

    name = "xplane"
    suffixes = SUFFIXES
    cheap_details = True

    def accepts(self, head: bytes, path: Path) -> bool:
        """Return whether `head` starts with a plane of a recognized name, or with any plane in a file `*.xplane.pb`."""
        if not head.startswith(b"\x0a"):
            return False
        return bool(START.match(head)) or path.name.endswith(SUFFIXES)

    def read(self, path: Path, *, details: bool = False, shapes: bool = True) -> Trace:
        """Return the profile in `path`, which is of one host, with all of its devices; with `details`, call stacks too.

        Times count from the profile's start (`clock` "session"), whose time is `epoch_ns`. Raises `TraceError` when the
        file cannot be read, is damaged or no profile, or protobuf is missing. Memory is that of the file, at most
        `files.LIMIT_NBYTES`, and about 220 bytes for each of its events, which are at least 8 bytes long.
        """
        content = read_bytes(path)
        schema = load_schema(path)
        try:
            programs = HloPrograms(content, schema)
            profile, header = read_space(content, schema, path, programs)
        except (ProtobufError, schema.error) as error:
            raise _explain(content, path, error) from error
        if not header.planes:
            raise TraceError(path, "is no XPlane profile: it has no plane", "give a file of the profiler's own")
        tables = attach_programs(profile, programs, details=details)
        return _make_trace(path, profile, header, tables, programs.unread)

    def covers(self, path: Path) -> Iterable[Path]:
        """Return the files next to `path` that hold the same profile for the trace viewer."""
        stem = path.name.removesuffix(".gz").removesuffix(".xplane.pb")
        names = (f"{stem}.trace.json.gz", f"{stem}.trace.json", "perfetto_trace.json.gz")
        return [path.with_name(name) for name in names]


def _explain(content: bytearray, path: Path, error: Exception) -> TraceError:
    """Return the `TraceError` that explains the `error` of decoding `content` to the user."""
    if REPLACED in content[:4096] and content.count(REPLACED) * 100 > len(content):
        problem = "is damaged: it was saved as text, and every byte that is no text is lost"
        return TraceError(path, problem, "copy the original again, as a binary file")
    if _runs_over(content):
        return TraceError(path, f"is truncated: it breaks off at byte {len(content)}", COPY_AGAIN)
    return TraceError(path, f"is damaged: it is no XPlane profile throughout ({error})", COPY_AGAIN)


def _runs_over(content: bytearray) -> bool:
    """Return whether a plane is longer than the rest of `content`."""
    at = 0
    try:
        for _ in range(PLANES):
            if at >= len(content) or content[at] & 7 != 2:
                break
            length, at = read_number(content, at + 1, len(content))
            at += length
    except ProtobufError:
        return True
    return at > len(content)


def _make_trace(path: Path, profile: Profile, header: XPlaneHeader, tables: ProgramTables, unread: int) -> Trace:
    """Return the trace of `profile`, whose events name rows of `tables`; `unread` programs could not be read."""
    tally, places = Tally(), find_places(profile.line_table())
    records = make_records(profile, places, tally)
    clock, epoch = start_clock(records.device, records.host, header.planes.get(TASK, {}).get("profile_start_time"))
    damaged = [write_unread(unread)] if unread else []
    notes = (*write_notes(places, records, header.planes), *_quote(header), *damaged)
    return assemble(
        path,
        XPlane.name,
        records,
        read=profile.read,
        clock=clock,
        epoch_ns=epoch,
        devices=_list_devices(header.planes),
        notes=notes,
        stacks=tables.stacks,
        instructions=tables.instructions,
    )


def start_clock(device: pl.DataFrame, host: pl.DataFrame, start: Any) -> tuple[Literal["unix", "session"], int | None]:
    """Return the clock of the times, and the time at which a session began if `start` contains it."""
    rows = device if device.height else host
    middle = rows["start_ns"].median() if rows.height else None
    if isinstance(middle, int | float) and middle > EARLIEST_UNIX_NS:
        return "unix", None
    epoch = parse_integer(start)
    return "session", epoch if epoch is not None and 0 < epoch < TIME_LIMIT_NS else None


def write_notes(places: pl.DataFrame, records: Records, planes: Iterable[str] = ()) -> Iterator[str]:
    """Yield a sentence for everything that the reader of a report should know about the profile's devices.

    `planes` are the names of all planes, including those without a line.
    """
    device = records.device
    kinds = set(places.filter(pl.col("role").is_in(["stream", "range", "derived"]))["kind"].drop_nulls())
    others = places.filter(pl.col("role") == "other-device")["plane"].unique(maintain_order=True)
    if not device.height and not kinds and others.len():
        yield f"holds no kernel: its devices are none that DeepProf reads ({', '.join(others[:SEVERAL])})"
    elif not device.height and kinds:
        yield "holds no kernel: no device line is a stream"
    elif not device.height:
        yield f"holds no kernel: {_explain_absence(records.host, planes)}"
    elif "GPU" not in kinds:
        yield f"is of a {min(kinds)}, which is no GPU: its XLA operations are taken for kernels"
    copies = device.filter(pl.col("activity") == "memcpy")
    if copies.height and not copies["nbytes"].count():
        yield "no copy has a size: this profiler records none"  # ROCm's


def _explain_absence(host: pl.DataFrame, planes: Iterable[str]) -> str:
    """Return why nothing ran on a device, from the calls of the host and the names of the planes."""
    calls = host.filter(pl.col("category") == "runtime")["name"] if host.height else pl.Series([], dtype=pl.String)
    if not count_starting(calls) and any(re.search(DEVICE_PLANE, plane) for plane in planes):
        return "its devices did nothing"
    return explain_silence(calls, "record again with the right to read the GPU's activities (CUPTI)")


def _quote(header: XPlaneHeader) -> Iterator[str]:
    """Yield notes on the profile's hosts, and its own errors and warnings."""
    if header.hostnames:
        yield f"recorded on {', '.join(header.hostnames[:SEVERAL])}"
    said = [*header.said, *(str(stats.get("dropped_traces", "")) for stats in header.planes.values())]
    yield from (f"the profiler says: {words[:200]}" for words in list(filter(None, said))[:SEVERAL])


def _list_devices(planes: Mapping[str, Stats]) -> pl.DataFrame:
    """Return the DEVICES table of the stats of `planes`, by their names."""
    found = {
        int(match[2]): stats for name, stats in planes.items() if (match := re.search(DEVICE_PLANE, name)) and stats
    }
    rows = [
        {
            "device": device,
            "name": str(
                stats.get("gpu_device_name") or stats.get("device_vendor") or stats.get("device_type_string", "")
            ),
            "memory_nbytes": _bounded(stats.get("memory_size"), 2**64),
            "multiprocessors": _bounded(stats.get("core_count"), 2**32),
            "properties": msgspec.json.encode(stats).decode(),
        }
        for device, stats in sorted(found.items())
        if device < 2**16
    ]
    return pl.DataFrame(rows, schema=DEVICES)


def _bounded(value: Any, limit: int) -> int | None:
    """Return `value` where it is an integer above 0 and below `limit`."""
    number = parse_integer(value)
    return number if number is not None and 0 < number < limit else None
