"""A comparison for people: what both runs are, what changed, in which stages, layers and parts of the time, and in
which code and kernels."""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from deepprof.collectors.names.short import shorten
from deepprof.metrics.contexts.frames import write_line
from deepprof.plurals import counted
from deepprof.render.comparison_anatomy import print_layers, print_stages
from deepprof.render.comparison_rows import HEADER, MARKS, SMALL, cells, print_hidden
from deepprof.render.comparison_work import print_work
from deepprof.render.flame import ENGINE, JOINT
from deepprof.render.page import TextPage
from deepprof.render.plain import shorten as cut
from deepprof.render.rows import ARROW, TextRow, draw_rows
from deepprof.render.units import format_bytes, format_duration, format_ratio
from deepprof.render.wording import CPU, GPU, Wording
from deepprof.results.comparison_result import (
    CodeLine,
    Comparison,
    ContextChange,
    KernelChange,
    LoopPair,
    OperationChange,
)

if TYPE_CHECKING:
    from rich.console import Console


OPERATIONS = 10  # rows of kernels
PATHS = 3
PAIRS = 16  # rows of ranks; JSON has all
NOTES = 4
SPELLED = 3  # kernels named of one replacement
APART = 24  # characters shown of the difference between two names
WORD = string.ascii_letters + string.digits + "_:"
TIMES = "\u00d7"


def print_comparison(comparison: Comparison, console: Console, *, limit: int = OPERATIONS) -> None:
    """Print the comparison on `console`, at its width; `limit` is the most rows of kernels in every table."""
    page = TextPage(console)
    a, b = (comparison.a_paths, comparison.a_answer), (comparison.b_paths, comparison.b_answer)
    for name, (paths, answer) in (("A", a), ("B", b)):
        more = f" and {len(paths) - PATHS} more" if len(paths) > PATHS else ""
        page.line(f"{name}  {', '.join(paths[:PATHS])}{more}", hang=3)
        page.line(answer.summary, indent=3)
    page.skip()
    page.line(comparison.headline.sentence, "bold")
    for each in comparison.differences:
        page.line(f"not the same {each.what}: {each.a} → {each.b}", "yellow", hang=2)
    for note in comparison.missing[:NOTES]:
        page.line(f"note: {note}", "yellow", hang=6)
    if len(comparison.missing) > NOTES:
        page.line(f"… and {len(comparison.missing) - NOTES} more (see --format json)", "yellow", indent=6)
    words = CPU if comparison.on_cpu else GPU
    _print_pairs(comparison.pairs, page, words)
    if comparison.worst is not None:
        _print_pair(comparison.worst, page, limit, words)


def _print_pairs(pairs: Sequence[LoopPair], page: TextPage, words: Wording) -> None:
    """Print one row per pair where there are several."""
    if len(pairs) < 2:
        return
    page.skip()
    page.line(f"Iterations by rank{'' if words.on_cpu else ' and device'}, the slowest change first", "bold")
    rows = [
        TextRow(_describe_place(pair, words), _times(pair.time.a_ns, pair.time.b_ns, pair.time.ratio))
        for pair in pairs[:PAIRS]
    ]
    draw_rows(page, HEADER, rows)
    if len(pairs) > PAIRS:
        page.line(f"and {counted(len(pairs) - PAIRS, 'more pair')}; --format json has all of them", "dim")


def _times(a_ns: int, b_ns: int, ratio: float) -> tuple[str, str, str]:
    sign = "+" if ratio > 1 else "-" if ratio < 1 else ""
    return format_duration(a_ns), format_duration(b_ns), f"{sign}{format_ratio(abs(ratio - 1))}"


def _describe_place(pair: LoopPair, words: Wording) -> str:
    """Return where a pair runs, with both numbers where they differ."""
    a, b = pair.a, pair.b
    pairs = (("rank", a.rank, b.rank), *(() if words.on_cpu else (("device", a.device, b.device),)))
    return ", ".join(f"{word} {x}" if x == y else f"{word} {x} → {y}" for word, x, y in pairs)


def _print_pair(pair: LoopPair, page: TextPage, limit: int, words: Wording) -> None:
    page.skip()
    before = f"{pair.a.period:,} → " if pair.a.period != pair.b.period else ""
    page.line(f"{_describe_place(pair, words)}: 1 iteration = {before}{words.count(pair.b.period)}", "bold")
    page.line(_describe_ratio(pair), indent=2)
    print_stages(pair, page, words)
    print_layers(pair, page, limit, words)
    _print_parts(pair, page, words)
    print_work(pair, page, words)
    _print_contexts(pair, page, limit, words)
    _print_operations(pair, page, limit, words)
    _print_kernels(pair, page, limit, words)
    _print_host(pair, page, words)


def title(words: Wording) -> str:
    """Return the name of what is compared, for the beginning of a line."""
    return f"{words.work.capitalize()}s"


def _describe_ratio(pair: LoopPair) -> str:
    time = pair.time
    bounds = "no interval: too few iterations"
    if time.low is not None and time.high is not None:
        bounds = f"{time.low:.3f} to {time.high:.3f} with 95 % confidence"
    medians = f"median {format_duration(time.a_ns)} → {format_duration(time.b_ns)}, B/A = {time.ratio:.3f} ({bounds})"
    return f"{medians}, over {time.a_iterations:,} and {counted(time.b_iterations, 'iteration')}"


def _print_parts(pair: LoopPair, page: TextPage, words: Wording) -> None:
    """Print the parts of the time that changed; small ones together, so that the rows add up."""
    least = SMALL * max(pair.a_mean_ns, pair.b_mean_ns)
    large = [part for part in pair.parts if abs(part.difference_ns) >= least]
    if not large:
        return
    listed = sorted(large, key=lambda part: -abs(part.difference_ns))
    rows = [TextRow(words.parts[part.name], cells(part.a_ns, part.b_ns)) for part in listed]
    a_rest, b_rest = pair.a_mean_ns - sum(p.a_ns for p in large), pair.b_mean_ns - sum(p.b_ns for p in large)
    rest = [TextRow("all other parts", cells(a_rest, b_rest))] if a_rest or b_rest else []
    page.skip()
    page.line("Where the time went, per mean iteration", "bold")
    draw_rows(page, HEADER, [*rows, *rest, TextRow("together", cells(pair.a_mean_ns, pair.b_mean_ns), "bold")])


def _print_contexts(pair: LoopPair, page: TextPage, limit: int, words: Wording) -> None:
    """Print whose code carries the change of the time on the device, and of that on the host."""
    host = "Time" if words.on_cpu else "Time on the host without waits"
    for measure, what in (("device", "Time on the device"), ("host", host)):
        rows = [row for row in pair.contexts if row.measure == measure]
        if not rows:
            continue
        page.skip()
        page.line(f"{what}, by code (+ new, - gone), per mean iteration", "bold")
        draw_rows(page, HEADER, list(map(_describe_context, rows[:limit])))
        print_hidden(len(rows) - limit, page)


def _describe_context(row: ContextChange) -> TextRow:
    return TextRow(f"{MARKS[row.status]} {name_context(row)}", cells(row.a_ns, row.b_ns))


def name_context(row: ContextChange) -> str:
    """Return the line of code of a calling context and what it is itself; without a line what calls it."""
    place, own = row.a or row.b, row.path[-1].removeprefix(ENGINE)
    around = row.path[-2:-1] if place is None else (_describe_lines(place, row.b or place),)
    itself = row.kind == "python" and place is not None and own == place.function
    return JOINT.join(around if itself else (*around, own))


def _describe_lines(a: CodeLine, b: CodeLine) -> str:
    """Return a line of code, with both numbers where it moved, and both lines where they are not of one function."""
    one, other = (write_line(each.function, each.file, each.line) for each in (a, b))
    if one == other:
        return one
    return one + ARROW + (str(b.line) if (a.function, a.file) == (b.function, b.file) else other)


def _print_operations(pair: LoopPair, page: TextPage, limit: int, words: Wording) -> None:
    """Print the kernels of the main stream that were added, removed or replaced, or whose time changed."""
    program = pair.program
    if program is None or program.problem is not None:
        return
    least = SMALL * pair.a_mean_ns
    rows = [row for row in program.operations if row.kind != "kept" or abs(row.difference_ns) >= least]
    if not rows:
        return
    page.skip()
    where = "thread" if words.on_cpu else "main stream"
    page.line(f"{title(words)} of the {where} that changed (~ replaced, + added, - removed)", "bold")
    draw_rows(page, HEADER, list(map(_describe_operation, rows[:limit])))
    print_hidden(len(rows) - limit, page)


def _describe_operation(row: OperationChange) -> TextRow:
    old, new = tell_apart(row.a[0], row.b[0]) if len(row.a) == len(row.b) == 1 else (name(row.a), name(row.b))
    became = new if row.kind == "replaced" else ""
    return TextRow(f"{MARKS[row.kind]} {row.times:,} {TIMES} {old or new}", cells(row.a_ns, row.b_ns), became=became)


def name(kernels: Sequence[str]) -> str:
    """Return the short names of consecutive kernels."""
    more = [f"{len(kernels) - SPELLED} more"] if len(kernels) > SPELLED else []
    return ", ".join([*map(shorten, kernels[:SPELLED]), *more])


def tell_apart(old: str, new: str) -> tuple[str, str]:
    """Return two short names; where they are the same, with what differs between the full ones."""
    short = shorten(old), shorten(new)
    if short[0] != short[1] or old == new:
        return short
    start = len(_shared(old, new).rstrip(WORD))  # cut at the start and the end of words
    end = len(_shared(old[start:][::-1], new[start:][::-1]).rstrip(WORD))
    own = (cut(text[start : len(text) - end].strip(), APART) for text in (old, new))
    one, other = (f"{short[0]} [{part}]" for part in own)
    return one, other


def _shared(one: str, other: str) -> str:
    """Return the common prefix of both texts."""
    pairs = enumerate(zip(one, other, strict=False))
    return one[: next((at for at, (x, y) in pairs if x != y), min(len(one), len(other)))]


def _print_kernels(pair: LoopPair, page: TextPage, limit: int, words: Wording) -> None:
    """Print kernels by name, on all streams, where their time changed."""
    least = SMALL * pair.a_mean_ns
    rows = [row for row in pair.kernels if abs(row.difference_ns) >= least]
    if not rows:
        return
    page.skip()
    page.line(f"{title(words)} by name, {'' if words.on_cpu else 'all streams, '}per iteration", "bold")
    draw_rows(page, HEADER, [TextRow(_describe_kernel(row), cells(row.a_ns, row.b_ns)) for row in rows[:limit]])
    print_hidden(len(rows) - limit, page)


def _describe_kernel(row: KernelChange) -> str:
    a, b = f"{row.a_count:,g}", f"{row.b_count:,g}"
    return f"{a if a == b else f'{a} → {b}'} {TIMES} {row.name}"


def _print_host(pair: LoopPair, page: TextPage, words: Wording) -> None:
    """Print copies and what the host did where they changed; without a device there are none."""
    rows = [] if words.on_cpu else [*_describe_copies(pair), *_describe_counts(pair)]
    if rows:
        page.skip()
        page.line("Copies and calls that changed, per iteration", "bold")
        draw_rows(page, HEADER, rows)


def _describe_copies(pair: LoopPair) -> Iterator[TextRow]:
    """Yield the copies whose number or size changed, or whose time changed by a good part of the iteration."""
    least = SMALL * pair.a_mean_ns
    for row in pair.copies:
        if row.a_nbytes != row.b_nbytes:
            difference = row.b_nbytes - row.a_nbytes
            sign = "+" if difference > 0 else "-"
            yield TextRow(
                f"{row.direction}, size",
                (format_bytes(row.a_nbytes), format_bytes(row.b_nbytes), sign + format_bytes(abs(difference))),
            )
        if abs(row.b_ns - row.a_ns) >= least:
            yield TextRow(f"{row.direction}, time", cells(row.a_ns, row.b_ns))
        if row.a_count != row.b_count:
            yield TextRow(f"{row.direction}, number", _compare_numbers(row.a_count, row.b_count))


def _describe_counts(pair: LoopPair) -> Iterator[TextRow]:
    """Yield what the host did more or less often."""
    changed = [row for row in pair.counts if abs(row.b - row.a) > SMALL * max(row.a, row.b)]
    yield from (TextRow(row.name, _compare_numbers(row.a, row.b)) for row in changed)


def _compare_numbers(a: float, b: float) -> tuple[str, str, str]:
    return f"{a:,.6g}", f"{b:,.6g}", f"{b - a:+,.4g}"
