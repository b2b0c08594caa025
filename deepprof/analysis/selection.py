"""A part of a job that is requested: named ranges, numbered kernels, iterations, a layer (PASTA's ranges).

The records of the part are their own trace, which is analysed as any other; the rest is counted as `not-selected`.
Iterations and layers are known only once the whole was analysed, which needs no second reading; its loops are kept.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from deepprof.analysis import Analysis, analyze, separate
from deepprof.collectors.errors import UsageError
from deepprof.collectors.kept_rows import NOT_SELECTED, RowMarks, keep_rows
from deepprof.collectors.trace import Trace
from deepprof.metrics.carried import keep_iterations
from deepprof.metrics.operators import is_stand_in
from deepprof.metrics.selection.chosen_parts import (
    count_kernels,
    find_iterations,
    find_spans,
    list_layers,
    mark_iterations,
    mark_kernels,
    mark_layer,
)
from deepprof.metrics.selection.marks import combine, mark_nothing
from deepprof.metrics.selection.named_ranges import list_range_names, mark_ranges
from deepprof.metrics.selection.selected_trace import SelectedTrace
from deepprof.metrics.spans import Spans
from deepprof.plurals import counted
from deepprof.render.plain import shorten

Numbers = tuple[int | None, int | None]  # first and the one after the last; None: open
SHOWN = 8  # names of what there is, in a message


class Selection(Struct, frozen=True, kw_only=True):
    """What is examined: all that `range`, `grid`, `iterations` and `layer` have in common; None: everything.

    `range` is the name of ranges, or a pattern with the wildcards of file names; `grid` are kernels by number, counted
    on every device from 0 on in order of their launch; `iterations` are those of the loop that uses most of a rank's
    time, by the numbers of the report; `layer` is the path of a layer. Of numbers the last one is left out, as Python
    counts. Raises `UsageError` for numbers that hold nothing.
    """

    range: str | None = None
    grid: Numbers | None = None
    iterations: Numbers | None = None
    layer: str | None = None

    def __post_init__(self) -> None:
        for what, numbers in (("grid", self.grid), ("iterations", self.iterations)):
            first, last = numbers or (None, None)
            if (first or 0) < 0 or (last is not None and last <= (first or 0)):
                raise UsageError(f"{what} {_write_numbers((first, last))} hold nothing; give FIRST:LAST, such as 10:20")

    @property
    def is_everything(self) -> bool:
        """Whether nothing is left out."""
        return self == Selection()

    @property
    def needs_analysis(self) -> bool:
        """Whether the whole has to be analysed to find the part."""
        return self.iterations is not None or self.layer is not None

    def describe(self) -> str:
        """Return what is selected, in words."""
        words = [] if self.range is None else [f"range {shorten(self.range)!r}"]
        words += [] if self.grid is None else [f"kernels {_write_numbers(self.grid)}"]
        words += [] if self.iterations is None else [f"iterations {_write_numbers(self.iterations)}"]
        words += [] if self.layer is None else [f"layer {shorten(self.layer)!r}"]
        return ", ".join(words)

    def explain_nothing(self) -> str:
        """Return a line on a selection that is there and has no event in it."""
        given = sum(part is not None for part in (self.range, self.grid, self.iterations, self.layer))
        if given > 1:
            return f"nothing is in all of {self.describe()}; leave one of them out"
        return f"nothing was launched or called in {self.describe()}; name another"


def _write_numbers(numbers: Numbers) -> str:
    """Return numbers as they are given, without the last."""
    first, last = numbers
    return f"{'' if first is None else first}:{'' if last is None else last}"


class _ReadRank(Struct, frozen=True, eq=False):
    """One rank of a job: the `trace` whose rows are selected, and its number in the analysis of the whole, if any."""

    trace: Trace
    analysis: Analysis | None
    number: int

    @property
    def analysed(self) -> Trace:
        """The trace that was analysed, which has operators as kernels on a machine without a device."""
        return self.trace if self.analysis is None else self.analysis.traces[self.number]

    @property
    def rank(self) -> int:
        """The number of the rank."""
        return self.trace.rank or 0


def select(  # noqa: PLR0913  options by name
    traces: Trace | Sequence[Trace],
    *,
    range: str | None = None,
    grid: Numbers | None = None,
    iterations: Numbers | None = None,
    layer: str | None = None,
    counts: Sequence[int] = (),
    stream: tuple[int, int] | None = None,
    same_device: bool = False,
) -> list[Trace]:
    """Return the part of every rank of a job that is requested, to be analysed: `analyze(select(traces, layer="fc"))`.

    `range` names ranges that the program wrote (`deepprof.range`, record_function, NVTX), with the wildcards of file
    names; what was launched in them is selected. `grid` are kernels (first, last), numbered from 0 on every device in
    order of their launch; `iterations` are iterations (first, last) of the loop that uses most of a rank's time, each
    until the next one starts; the last number is left out, None is open. `layer` is the path of a layer, which is
    selected with all below it, forward and backward. Of several, what all have in common is selected.

    For iterations and layers the whole is analysed first, with the options of `analyze`; the part keeps its loops, with
    the iterations that are in it and their numbers (`SelectedTrace`). Records that are left out are counted as
    `not-selected`, and a note states what part it is. Raises `UsageError` where nothing is selected.
    """
    asked = Selection(range=range, grid=grid, iterations=iterations, layer=layer)
    ranks = list(separate((traces,) if isinstance(traces, Trace) else traces))
    if asked.is_everything:
        return ranks
    if not ranks:
        raise UsageError("no trace given; name a file or a directory of ranks")
    analysis = analyze(ranks, counts=counts, stream=stream, same_device=same_device) if asked.needs_analysis else None
    read = [_ReadRank(_choose_trace(trace, analysis, k), analysis, k) for k, trace in enumerate(ranks)]
    marks = [combine(each) for each in zip(*_mark_all(read, asked), strict=True)]
    if not any(each[table].any() for each in marks for table in ("device_events", "host_events")):
        raise UsageError(asked.explain_nothing())
    return [_take(each, kept, asked) for each, kept in zip(read, marks, strict=True)]


def _choose_trace(recorded: Trace, analysis: Analysis | None, number: int) -> Trace:
    """Return the trace whose rows are selected: as it was read, or, if analysed, with host and device on one clock."""
    if analysis is None or is_stand_in(analysis.traces[number]):
        return recorded
    return analysis.traces[number]


def _take(each: _ReadRank, kept: RowMarks, asked: Selection) -> Trace:
    """Return the part of a rank, with a note on what it is, and with the loops of the whole where that was analysed."""
    part = keep_rows(each.trace, kept)
    left = part.accounting.dropped.get(NOT_SELECTED, 0)
    note = f"only a part is looked at: {asked.describe()}; {counted(left, 'record')} outside of it"
    part = replace(part, notes=(note, *part.notes))
    if each.analysis is not None:
        return _bring_loops(part, each, each.analysis, asked)
    if isinstance(part, SelectedTrace) and asked.grid is not None:
        return replace(part, is_numbered=True)
    return part


def _bring_loops(part: Trace, each: _ReadRank, analysis: Analysis, asked: Selection) -> SelectedTrace:
    """Return the part of a rank with what the analysis of the whole found: its loops and the roles of its streams."""
    own = [loop for loop in analysis.loops if loop.rank == each.rank]
    within = _find_time(each, analysis, asked)
    kept = (keep_iterations(loop, within) for loop in own)
    roles = analysis.streams.filter(rank=each.rank).select("device", "stream", pl.col("role").cast(pl.String))
    main = roles.filter(role="main")["stream"].to_list()
    return SelectedTrace(
        **{name: getattr(part, name) for name in Trace.__struct_fields__},
        loops=tuple(loop for loop in kept if loop is not None),
        roles=roles,
        thread=main[0] if main and is_stand_in(each.analysed) else None,
        is_numbered=asked.grid is not None or (isinstance(part, SelectedTrace) and part.is_numbered),
    )


def _find_time(each: _ReadRank, analysis: Analysis, asked: Selection) -> Spans | None:
    """Return the time of the iterations that are requested, None: of all."""
    number = find_main_loop(analysis, each.rank)
    if asked.iterations is None or number is None:
        return None
    loop = analysis.loops[number]
    return find_spans(loop, find_iterations(loop, *asked.iterations))


def _mark_all(ranks: Sequence[_ReadRank], asked: Selection) -> Iterator[list[RowMarks]]:
    """Yield for every thing that is requested the marks of all ranks; raises `UsageError` for what no rank has."""
    if (name := asked.range) is not None:
        yield _mark(ranks, lambda each: mark_ranges(each.trace, name), lambda: _explain_range(ranks, name))
    if asked.grid is not None:
        first, last = asked.grid
        yield _mark(ranks, lambda each: mark_kernels(each.trace, first, last), lambda: _explain_grid(ranks, asked))
    if asked.iterations is not None:
        numbers = asked.iterations
        yield _mark(ranks, lambda each: _mark_numbers(each, numbers), lambda: _explain_iterations(ranks, asked))
    if (path := asked.layer) is not None:
        yield _mark(ranks, lambda each: _mark_path(each, path), lambda: _explain_layer(ranks, path))


def _mark(
    ranks: Sequence[_ReadRank], mark: Callable[[_ReadRank], RowMarks | None], explain: Callable[[], str]
) -> list[RowMarks]:
    """Return the marks of all ranks; of one that has nothing of it none. Raises `UsageError` where none has any."""
    found = [mark(each) for each in ranks]
    if all(marks is None for marks in found):
        raise UsageError(explain())
    return [mark_nothing(each.trace) if marks is None else marks for each, marks in zip(ranks, found, strict=True)]


def _mark_numbers(each: _ReadRank, numbers: Numbers) -> RowMarks | None:
    """Return the marks of iterations of the loop that uses most of a rank's time."""
    number = None if each.analysis is None else find_main_loop(each.analysis, each.rank)
    if each.analysis is None or number is None:
        return None
    return mark_iterations(each.analysed, each.analysis.loops[number], *numbers, each.trace)


def _mark_path(each: _ReadRank, path: str) -> RowMarks | None:
    return None if each.analysis is None else mark_layer(each.analysis.annotated.get(each.rank), path, each.trace)


def find_main_loop(analysis: Analysis, rank: int) -> int | None:
    """Return the number of the loop that uses most of a rank's time, None where it has none."""
    times = {
        number: int(loop.iterations["operation_ns"].sum())
        for number, loop in enumerate(analysis.loops)
        if loop.rank == rank
    }
    return max(times, key=lambda number: times[number], default=None)


def say_iterations(analysis: Analysis, rank: int) -> str:
    """Return which iterations a rank has."""
    number = find_main_loop(analysis, rank)
    if number is None:
        return f"no iteration was found: {analysis.no_loop_reason or f'rank {rank} has none'}"
    numbers = analysis.loops[number].iterations["index"].to_list()
    return f"there is no such iteration; there are {numbers[0]} to {numbers[-1]}"


def _explain_range(ranks: Sequence[_ReadRank], name: str) -> str:
    names = pl.concat(list_range_names(each.trace) for each in ranks)
    known = names.group_by("name", maintain_order=True).agg(pl.col("len").sum()).sort("len", descending=True)
    there = _list(known["name"].to_list()) if known.height else "no ranges; deepprof.range writes some"
    return f"range {shorten(name)!r}: there is none of this name; there are {there}"


def _explain_grid(ranks: Sequence[_ReadRank], asked: Selection) -> str:
    most = max(count_kernels(each.trace) for each in ranks)
    there = f"there are 0 to {most - 1}" if most else "there are none on a device"
    return f"no kernel has a number in {_write_numbers(asked.grid or (None, None))}, {there}"


def _explain_iterations(ranks: Sequence[_ReadRank], asked: Selection) -> str:
    analysis, rank = ranks[0].analysis, ranks[0].rank
    there = "" if analysis is None else say_iterations(analysis, rank)
    return f"iterations {_write_numbers(asked.iterations or (None, None))}: {there}"


def _explain_layer(ranks: Sequence[_ReadRank], path: str) -> str:
    """Return a line on the layers that there are, those first that resemble the one that is requested."""
    known = [(each.analysis.annotated.get(each.rank) if each.analysis is not None else None) for each in ranks]
    paths = list(dict.fromkeys(name for each in known for name in list_layers(each)))
    near = [name for name in paths if path.lower() in name.lower()] or difflib.get_close_matches(path, paths, SHOWN)
    there = _list([*near, *(name for name in paths if name not in near)])
    return f"layer {shorten(path)!r}: there is none of this path; there are {there if paths else 'no known layers'}"


def _list(names: Sequence[str | None]) -> str:
    """Return the first of some names, and how many more there are."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(shorten(name or "") for name in names[:SHOWN]) + more
