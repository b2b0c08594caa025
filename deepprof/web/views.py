"""Which views the page has, and which documents each of them can show of an analysis.

A view is one module of `documents/`, an entry here, and one file of the page's own sources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct, field

from deepprof.analysis import Analysis, Loop
from deepprof.diagnosis.answer import find_mean
from deepprof.metrics.contexts.slices import has_code
from deepprof.metrics.ranks.facts import longest_loops
from deepprof.render.wording import wording_of
from deepprof.web.documents.findings import write_findings
from deepprof.web.documents.flame import write_flame
from deepprof.web.documents.iterations import write_iterations
from deepprof.web.documents.memory import write_memory
from deepprof.web.documents.places import name_loop
from deepprof.web.documents.ranks import write_ranks
from deepprof.web.documents.roofline import write_roofline
from deepprof.web.documents.session import DocumentEntry, ViewEntry
from deepprof.web.documents.states import write_states
from deepprof.web.documents.timeline import write_timeline

MOST_RANKS = 16  # of which the page has a timeline and calling contexts; the slowest
MOST_LOOPS = 16
ELSEWHERE = "The traces were examined on other machines: only a report made where they are can show this."
NO_SHAPES = (
    "The shapes of operators were not recorded, or left out with --no-shapes: torch.profiler records them with "
    "record_shapes=True."
)
DIRECTIONS = {"down": "top-down", "up": "bottom-up"}

Write = Callable[["Analysis", Sequence[str]], Any]
"""Returns the document with the parts of a key after the view's name; raises `NoDocumentError` where there is none."""


class NoDocumentError(Exception):
    """There is no document of that key."""


class ViewSource(Struct, frozen=True):
    """A view: the documents that it can show, why there are none, and what writes one.

    `find_problem` returns why an analysis has no data for it, and how to record them; None where it has.
    """

    name: str
    title: str
    list_documents: Callable[[Analysis], list[DocumentEntry]]
    find_problem: Callable[[Analysis], str | None]
    write: Write
    beside: Mapping[str, Write] = field(default_factory=dict)  # documents of other names that it shows, too

    def list_keys(self, shown: ViewEntry) -> Iterator[str]:
        """Yield the keys of all documents that this view needs, as `describe` returned it."""
        for entry in shown.documents:
            yield entry.key
            yield from (f"{name}/{entry.key.partition('/')[2]}" for name in self.beside)

    def describe(self, analysis: Analysis) -> ViewEntry:
        """Return the view of an analysis."""
        problem = self.find_problem(analysis)
        documents = self.list_documents(analysis) if problem is None else []
        return ViewEntry(name=self.name, title=self.title, documents=documents, problem=problem)


def _list_findings(_: Analysis) -> list[DocumentEntry]:
    return [DocumentEntry(key="findings", title="all findings")]


def _list_iterations(analysis: Analysis) -> list[DocumentEntry]:
    """Return a document per loop, in their order; of too many those of the worst ranks."""
    words, loops = wording_of(analysis), analysis.loops
    chosen = [*dict.fromkeys([*choose_loops(analysis), *range(len(loops))])][:MOST_LOOPS]
    return [
        DocumentEntry(
            key=f"iterations/{number}", title=name_loop(loops[number], words), loop=number, rank=loops[number].rank
        )
        for number in sorted(chosen)
    ]


def _list_rooflines(analysis: Analysis) -> list[DocumentEntry]:
    with_roofline = {number for number, loop in enumerate(analysis.loops) if loop.roofline is not None}
    return [
        msgspec.structs.replace(entry, key=f"roofline/{entry.loop}")
        for entry in _list_iterations(analysis)
        if entry.loop in with_roofline
    ]


def _list_timelines(analysis: Analysis) -> list[DocumentEntry]:
    """Return the document of typical iterations, and of the slowest one of the first loop where it is another."""
    chosen = choose_loops(analysis)
    entries = [DocumentEntry(key="timeline", title="typical iterations", loops=chosen)]
    for number in chosen[:1]:
        loop = analysis.loops[number]
        slowest = _find_slowest(loop)
        if slowest is not None and slowest != loop.typical:
            title = f"slowest iteration, {slowest}"
            key = f"timeline/{number}/{slowest}"
            entries.append(DocumentEntry(key=key, title=title, loop=number, rank=loop.rank, iteration=slowest))
    return entries


def _list_flames(analysis: Analysis) -> list[DocumentEntry]:
    """Return a document per rank and direction, the ranks in their order; of too many those of the worst."""
    known = [trace.rank or 0 for trace in analysis.traces]
    worst = [analysis.loops[number].rank for number in choose_loops(analysis)]
    ranks = sorted([*dict.fromkeys([*worst, *known])][:MOST_RANKS])
    return [
        DocumentEntry(key=f"flame/{rank}/{way}", title=f"rank {rank}, {title}", rank=rank)
        for rank in ranks
        for way, title in DIRECTIONS.items()
    ]


def _list_one(name: str, title: str) -> Callable[[Analysis], list[DocumentEntry]]:
    return lambda _: [DocumentEntry(key=name, title=title)]


def choose_loops(analysis: Analysis) -> list[int]:
    """Return the loop of every rank and device that uses most of its time, by number, the worst rank first."""
    numbers = {id(loop): number for number, loop in enumerate(analysis.loops)}
    longest = longest_loops(loop for loop in analysis.loops if loop.typical is not None)
    compared = [] if analysis.ranks is None else analysis.ranks.ranks.select("rank", "device").rows()
    order = {place: k for k, place in enumerate(compared)}

    def sort_key(place: tuple[int, int]) -> tuple[int, float]:
        return order.get(place, len(order)), -(find_mean(longest[place]) or 0.0)

    return [numbers[id(longest[place])] for place in sorted(longest, key=sort_key)][:MOST_RANKS]


def _find_slowest(loop: Loop) -> int | None:
    """Return the index of the usual iteration that lasts longest, None where there is none."""
    usual = loop.usual
    row = usual["iteration_ns"].arg_max()
    return None if row is None else int(usual["index"][row])


def _without_loop(analysis: Analysis) -> str | None:
    if analysis.loops:
        return None if analysis.traces else ELSEWHERE
    return f"No iteration was found: {analysis.no_loop_reason}. Record at least three iterations."


def _without_typical(analysis: Analysis) -> str | None:
    if not choose_loops(analysis) or not analysis.traces:
        return _without_loop(analysis) or "No whole iteration was recorded: record at least three in a row."
    return None


def _without_code(analysis: Analysis) -> str | None:
    if any(has_code(trace) or (trace.rank or 0) in analysis.trees for trace in analysis.traces):
        return None
    if not analysis.traces:
        return ELSEWHERE
    how = analysis.without_lines or "record the host's operators or ranges beside the kernels"
    return f"The recording has no function, operator or range of the host; {how}."


def _without_roofline(analysis: Analysis) -> str | None:
    if any(loop.roofline is not None for loop in analysis.loops):
        return None
    return _without_loop(analysis) or NO_SHAPES


def _without_ranks(analysis: Analysis) -> str | None:
    if analysis.ranks is not None:
        return None
    return "One rank was given: name the traces of all ranks, as a directory or a pattern, to compare them."


def _never(_: Analysis) -> str | None:
    return None


def _write_timelines(analysis: Analysis, parts: Sequence[str]) -> Any:
    """Return typical iterations, or one iteration by loop and index."""
    if not parts:
        typical = [(number, analysis.loops[number].typical) for number in choose_loops(analysis)]
        return write_timeline(analysis, [(number, index) for number, index in typical if index is not None])
    number, index = _read_numbers(parts, 2)
    if number >= len(analysis.loops):
        raise NoDocumentError
    if not analysis.loops[number].iterations["index"].is_in([index]).any() or analysis.loops[number].anatomy is None:
        raise NoDocumentError
    return write_timeline(analysis, [(number, index)])


def _write_flames(analysis: Analysis, parts: Sequence[str]) -> Any:
    rank, way = _read_numbers(parts[:1], 1)[0], parts[1:]
    if rank not in analysis.context_trees:
        raise NoDocumentError
    if list(way) == ["down"]:
        return write_flame(analysis, rank, "down")
    if list(way) == ["up"]:
        return write_flame(analysis, rank, "up")
    raise NoDocumentError


def _by_loop(write: Callable[[Analysis, int], Any]) -> Write:
    def write_loop(analysis: Analysis, parts: Sequence[str]) -> Any:
        (number,) = _read_numbers(parts, 1)
        if number >= len(analysis.loops):
            raise NoDocumentError
        return write(analysis, number)

    return write_loop


def _write_rooflines(analysis: Analysis, parts: Sequence[str]) -> Any:
    found = _by_loop(write_roofline)(analysis, parts)
    if found is None:
        raise NoDocumentError
    return found


def _of_all(write: Callable[[Analysis], Any]) -> Write:
    """Return what writes the only document of a view."""

    def write_only(analysis: Analysis, parts: Sequence[str]) -> Any:
        _read_numbers(parts, 0)
        return write(analysis)

    return write_only


def _read_numbers(parts: Sequence[str], many: int) -> list[int]:
    """Return this many whole numbers; raises `NoDocumentError` for anything else."""
    if len(parts) != many or not all(part.isascii() and part.isdecimal() and len(part) < 19 for part in parts):
        raise NoDocumentError
    return [int(part) for part in parts]


VIEWS = (
    ViewSource("findings", "Findings", _list_findings, _never, _of_all(write_findings)),
    ViewSource(
        "iterations",
        "Iterations",
        _list_iterations,
        _without_loop,
        _by_loop(write_iterations),
        {"states": _by_loop(write_states)},
    ),
    ViewSource("timeline", "Timeline", _list_timelines, _without_typical, _write_timelines),
    ViewSource("flame", "Flame", _list_flames, _without_code, _write_flames),
    ViewSource("roofline", "Roofline", _list_rooflines, _without_roofline, _write_rooflines),
    ViewSource("ranks", "Ranks", _list_one("ranks", "all ranks"), _without_ranks, _of_all(write_ranks)),
    ViewSource("memory", "Copies and memory", _list_one("memory", "all ranks"), _never, _of_all(write_memory)),
)
