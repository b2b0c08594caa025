"""The kernels, or the memory, that a question finds, with what they needed and the code that they come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from deepprof.collectors.names.short import shorten
from deepprof.plurals import counted
from deepprof.render.flame import ENGINE, ON_DEVICE, label
from deepprof.render.plain import shorten as cut
from deepprof.render.units import format_bytes, format_duration, format_ratio
from deepprof.version import read_version

if TYPE_CHECKING:
    import polars as pl

    from deepprof.render.page import TextPage

SCHEMA = "deepprof.locate/1"
KIND_COLUMNS = 14  # of the longest kind and a gap
LEAST_ROOM = 20


class _FrameBlock(msgspec.Struct, frozen=True, kw_only=True):
    """One frame: what it is and its name; of a Python function its file and line."""

    kind: str
    name: str
    file: str | None
    line: int | None


class LocatedBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel or copy with what all its calls took, or allocations of one operator and one size, or of one call stack.

    `value` is what they are ordered by. `share_ratio` is the share of the time of all of them, or of the memory in use
    at the peak. `stack` is the code that launched (allocated) most of it, the outermost frame first: `stack_calls` of
    the calls, `stack_ns` of the time; `places` is from how many places it comes. Null: not known, or not of its kind.
    """

    name: str | None
    activity: str
    value: float | None
    calls: int
    device_ns: int | None = None
    mean_ns: float | None = None
    min_ns: int | None = None
    max_ns: int | None = None
    nbytes: float | None = None
    piece_nbytes: int | None = None
    share_ratio: float | None = None
    grid: float | None = None
    block: float | None = None
    registers: float | None = None
    shared_nbytes: float | None = None
    places: int | None = None
    stack_calls: int | None = None
    stack_ns: int | None = None
    stack: list[_FrameBlock] = []


class LocateReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was requested, `by`, of which rank, and what was found: the first `located` of `total`."""

    schema: str = SCHEMA
    deepprof: str = msgspec.field(default_factory=read_version)
    by: str
    rank: int
    device: int | None = None
    in_use_nbytes: int | None = None
    total: int
    located: list[LocatedBlock]
    notes: list[str]


def list_frames(frames: pl.DataFrame) -> list[_FrameBlock]:
    """Return frames with the schema `FRAMES` as blocks."""
    return [_FrameBlock(**row) for row in frames.iter_rows(named=True)]


def encode_located(report: LocateReport) -> str:
    """Return the report as indented JSON that ends with a newline."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n"


def print_located(report: LocateReport, page: TextPage) -> None:
    """Print what was found: a paragraph each, with the numbers and the stack."""
    for number, found in enumerate(report.located):
        if number:
            page.skip()
        page.line(_name(found), "bold", hang=2)
        page.line(" · ".join(_list_numbers(found, report.by)), indent=2, hang=2)
        if found.stack:
            page.line(_say_place(found), indent=2, hang=2)
            _print_stack(found.stack, page)
    for note in report.notes:
        page.skip()
        page.line(note, "dim")


def _name(found: LocatedBlock) -> str:
    if found.activity == "allocation":
        pieces = "" if found.piece_nbytes is None else f", pieces of {format_bytes(found.piece_nbytes)}"
        return f"{found.name or '(no operator)'}{pieces}"
    name = found.name or "(unnamed)"
    return shorten(name) if found.activity in ON_DEVICE else name


def _list_numbers(found: LocatedBlock, by: str) -> list[str]:
    """Return what something took, as far as it is available."""
    whole = "of the peak" if found.activity == "allocation" else "of the time"
    share = None if found.share_ratio is None else f"{format_ratio(found.share_ratio)} {whole}"
    launch = None
    if found.grid is not None and found.block is not None:
        launch = f"{found.grid:,.4g} blocks of {counted(round(found.block), 'thread')}"
    numbers = (
        f"{by.removeprefix('own:')} = {found.value:,.6g}"
        if by.startswith("own:") and found.value is not None
        else None,
        counted(found.calls, "piece" if found.activity == "allocation" else "call"),
        None if found.device_ns is None else format_duration(found.device_ns),
        None if found.activity == "allocation" else share,
        None if found.mean_ns is None else f"{format_duration(found.mean_ns)} each",
        None if found.nbytes is None else format_bytes(found.nbytes),
        share if found.activity == "allocation" else None,
        launch,
        None if found.registers is None else counted(round(found.registers), "register"),
    )
    return [each for each in numbers if each is not None]


def _say_place(found: LocatedBlock) -> str:
    if found.activity == "allocation":
        return "the first of them was allocated in"
    many = f"{found.stack_calls:,} of its calls, {format_duration(found.stack_ns)}"
    if found.places == 1:
        return "all launched from"
    return f"launched from {counted(found.places or 0, 'place')}, most ({many}) from"


def _print_stack(stack: Sequence[_FrameBlock], page: TextPage) -> None:
    """Print frames, the outermost first, one a line."""
    room = max(LEAST_ROOM, page.width - KIND_COLUMNS - 4)
    for frame in stack:
        row: dict[str, Any] = msgspec.structs.asdict(frame)
        text = label(row | {"name": frame.name.removeprefix(ENGINE)})
        page.draw(f"{frame.kind:<{KIND_COLUMNS}}{cut(text, room)}", indent=4)
