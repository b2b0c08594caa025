"""The main stream as the miner reads it: one symbol per kernel, with the times that serve as evidence."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct, field

from deepprof.collectors.trace import Trace
from deepprof.metrics.host import HostSide, read_host
from deepprof.metrics.streams import is_mostly_copies

Int64s = npt.NDArray[np.int64]

UNRECORDED = 255  # the number of a copy's direction where none was recorded: above those of all directions


class Sequence(Struct, frozen=True, eq=False):
    """The kernels (and graph launches) of one stream in the order in which they started; arrays of one length n.

    `symbols` are name ids; of a stream that only copies they are numbers of directions and sizes, and `directions` has
    the direction of each. `launch_ns` is when the host launched each kernel; it never falls, and it is -1 for
    kernels launched before the capture began. `linked` is whether the trace has launch records at all. `breaks` are
    the places, ascending, before which the recording was interrupted.
    """

    device: int
    stream: int
    symbols: npt.NDArray[np.uint32]
    start_ns: Int64s
    end_ns: Int64s
    launch_ns: Int64s
    linked: bool
    breaks: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    directions: npt.NDArray[np.uint32] | None = None

    @property
    def gap_ns(self) -> Int64s:
        """Idle time of the stream before each kernel; 0 for the first, and where it is unknown."""
        gaps = before(self.start_ns, np.maximum.accumulate(self.end_ns))
        gaps[self.breaks] = 0
        return gaps

    @property
    def busy_ns(self) -> Int64s:
        """Time that each kernel adds to the time in which the stream works: all of it, unless kernels overlap."""
        reach = np.maximum.accumulate(self.end_ns)
        earlier = np.append(self.start_ns[:1], reach[:-1])
        added: Int64s = np.maximum(reach - np.maximum(self.start_ns, earlier), 0)
        return added


def before(starts: Int64s, ends: Int64s) -> Int64s:
    """Return the positive distance from every element's predecessor's end to its start."""
    gaps = np.zeros(len(starts), np.int64)
    np.subtract(starts[1:], ends[:-1], out=gaps[1:])
    return np.maximum(gaps, 0)


def main_kernels(trace: Trace, device: int, stream: int) -> pl.DataFrame:
    """Return the kernels (and graph launches) of one stream, with their `row` in the table of device events.

    Of a stream that has hardly any kernels next to its copies these are the copies: steps that only copy are steps,
    too."""
    on_stream = (pl.col("device") == device) & (pl.col("stream") == stream)
    work = trace.device_events.lazy().with_row_index("row").filter(on_stream).collect()
    kernels = work.filter(pl.col("activity").is_in(["kernel", "graph"]))
    return work.filter(pl.col("activity") == "memcpy") if is_mostly_copies(work) else kernels


def main_sequence(trace: Trace, device: int, stream: int, host: HostSide | None = None) -> Sequence:
    """Return the kernels of (device, stream) as symbols; copies, memsets and waits are no part of the sequence.

    Where the stream has hardly any kernels, its copies are the symbols, by direction and size.

    `host` is the trace's host side, if the caller already has it.
    """
    work = main_kernels(trace, device, stream)
    launches = (host or read_host(trace)).launches
    linked = work.select("correlation").join(launches, on="correlation", how="left", maintain_order="left")
    start_ns = work["start_ns"].to_numpy()
    symbols, directions = _number_copies(work) if (work["activity"] == "memcpy").any() else (work["name_id"], None)
    return Sequence(
        device,
        stream,
        symbols.to_numpy(),
        start_ns,
        work["end_ns"].to_numpy(),
        linked["launch_ns"].cum_max().forward_fill().fill_null(-1).to_numpy(),
        bool(linked["launch_ns"].count()),
        _places_of(trace.breaks_ns, start_ns),
        directions,
    )


def _number_copies(copies: pl.DataFrame) -> tuple[pl.Series, npt.NDArray[np.uint32]]:
    """Return a number for each copy, the same for those of one direction and size, and the direction of each number."""
    copies = copies.select("copy_kind", "nbytes")
    kinds = copies.unique(maintain_order=True)
    directions = kinds["copy_kind"].to_physical().cast(pl.UInt32).fill_null(UNRECORDED).to_numpy()
    numbers = copies.join(
        kinds.with_row_index("symbol"), on=["copy_kind", "nbytes"], nulls_equal=True, how="left", maintain_order="left"
    )
    return numbers["symbol"], directions


def _places_of(breaks_ns: tuple[int, ...], starts: Int64s) -> Int64s:
    """Return the places in sorted `starts` before which the recording was interrupted, none at an end."""
    places = np.unique(np.searchsorted(starts, np.array(breaks_ns, np.int64)))
    return places[(places > 0) & (places < len(starts))].astype(np.int64)
