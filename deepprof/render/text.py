"""The report for people: the answer, where the time goes, what costs it, and how the iteration was found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from deepprof.diagnosis import MAX_FINDINGS
from deepprof.diagnosis.answer import STALLS, choose_loop, find_mean, find_time
from deepprof.diagnosis.finding import Finding
from deepprof.metrics.breakdown.costs import mean_parts
from deepprof.metrics.loop import Loop
from deepprof.plurals import counted, verb
from deepprof.render.anatomy import print_anatomy
from deepprof.render.answer import describe_location, print_answer
from deepprof.render.computed import print_loop_work, print_recorded_work
from deepprof.render.origin import LOOPS, print_origin
from deepprof.render.page import TextPage
from deepprof.render.ranks import print_ranks
from deepprof.render.sharing import print_sharing
from deepprof.render.top import print_top
from deepprof.render.units import format_confidence, format_duration, format_ratio
from deepprof.render.utilization import describe_utilization
from deepprof.render.wording import GPU_PARTS, Wording, wording_of
from deepprof.results.analysis_result import AnalysisResult

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console


T = TypeVar("T")

BLOCKS = "▁▂▃▄▅▆▇█"

ASCII_BLOCKS = "_.-=+*%#"

WARMUP, INCOMPLETE, NO_TIME = "w", "i", "?"


SMALL = 0.005  # of the time: smaller parts share a line

OTHERS = "other parts"

WIDEST = 30  # columns of a bar

AROUND = 17  # columns: the indent, the share, and what separates them

BAR, ASCII_BAR = "█", "#"


PATHS = 3
TITLES = 10  # of findings beyond the limit
NOTES = 4  # in full with -v
ALIKE = 0.02  # of the kernels of an iteration: ranks of one program differ by up to this share
LONG = 200  # characters of a note: recorders quote whole paths and commands
PLACES = 4  # of repeated findings
MODELS = 4  # names of devices
STYLES = {"critical": "bold red", "warning": "bold yellow", "info": "bold blue"}
ICONS = {"critical": "✖", "warning": "▲", "info": "●"}
OF_NO_CODE = {"shared-device", "slower-device", "straggler"}  # what is found is another process or machine


def print_report(
    analysis: AnalysisResult, console: Console, *, limit: int | None = MAX_FINDINGS, verbose: bool = False
) -> None:
    """Print the report on `console`, at its width, in ASCII where its encoding has no more; `limit` as in JSON.

    With `verbose` the evidence for the iterations, the paper's figures and all notes follow.
    """
    page = TextPage(console)
    _print_run(analysis, page)
    print_answer(analysis, page)
    _print_loops(analysis, page)
    if analysis.no_loop_reason:
        _print_without_loop(analysis, analysis.no_loop_reason, page)
    print_ranks(analysis, page)
    print_sharing(analysis, page)
    _print_findings(analysis, page, limit)
    _print_unnamed(analysis, page)
    print_origin(analysis, page, verbose=verbose)
    told = analysis.no_loop_reason or ""
    notes = (note for recording in analysis.recordings for note in recording.notes)
    _print_notes([note for note in notes if note.removeprefix("holds no kernel: ") not in told], page, verbose=verbose)


def _print_without_loop(analysis: AnalysisResult, reason: str, page: TextPage) -> None:
    """Print why there is no loop, and where the time goes."""
    words = wording_of(analysis)
    answer = analysis.answer
    if answer.kind == "no work":  # the answer has the reason
        return
    page.skip()
    page.line("No iteration found", "bold")
    page.line(words.speak(reason), indent=2)
    whole = "the recording" if answer.step is None else "the marked step"
    if answer.step is not None and len(analysis.stretches) > 1:
        whole += f" on {describe_place(answer.step.rank, answer.step.device, None, words)}"
    totals = {name: share * answer.whole_ns for name, share in answer.parts.items()}
    print_breakdown(f"where the time of {whole} goes", totals, page, words.parts)
    if answer.step is None:
        print_recorded_work(analysis, page, words)
    else:
        print_loop_work(answer.step, totals.get("exposed_communication_ns", 0.0), page, words)
    _print_stretch(analysis, page, words)


def _print_stretch(analysis: AnalysisResult, page: TextPage, words: Wording) -> None:
    """Print the kernels and copies of the marked step that the answer is about, or else of the longest recording."""
    step = analysis.answer.step
    about = [
        each for each in analysis.stretches if step is None or (each.rank, each.device) == (step.rank, step.device)
    ]
    longest = max(about, key=lambda each: each.top.mean_ns, default=None)
    if longest is None:
        return
    where = describe_place(longest.rank, longest.device, None, words) if len(analysis.stretches) > 1 else ""
    print_top(longest.top, page, words.work, where)
    if longest.roofline is not None:
        page.line(describe_utilization(longest.roofline, f"the {longest.top.over}"), indent=2, hang=2)


def _print_run(analysis: AnalysisResult, page: TextPage) -> None:
    page.line(name_paths(analysis), "bold")
    page.line(" · ".join(describe_run(analysis)))
    summary = analysis.summary
    alone = "span" if wording_of(analysis).on_cpu else "device span"
    span = alone if len(analysis.recordings) == 1 else "devices together"
    times = [f"{span} {format_duration(summary.span_ns)}", f"busy {format_ratio(summary.busy_ratio)}"]
    page.line(" · ".join([*(times if summary.span_ns else []), count_events(analysis)]))


def name_paths(analysis: AnalysisResult) -> str:
    """Return the paths of the first traces, and how many more there are."""
    names = [recording.path for recording in analysis.recordings]
    more = [f"and {len(names) - PATHS} more"] if len(names) > PATHS else []
    return ", ".join([*names[:PATHS], *more])


def _print_notes(notes: Iterable[str], page: TextPage, *, verbose: bool = False) -> None:
    """Print the first notes, each once, and how many more there are."""
    distinct = list(dict.fromkeys(notes))
    shown = distinct if verbose else distinct[:NOTES]
    if shown:
        page.skip()
    for note in shown:
        text = note if verbose or len(note) <= LONG else note[:LONG].rsplit(" ", 1)[0] + " …"
        page.line(f"note: {text}", "yellow", hang=6)
    if len(distinct) > len(shown):
        page.line(f"… and {len(distinct) - len(shown)} more (-v shows them)", "yellow", indent=6)


def describe_run(analysis: AnalysisResult) -> list[str]:
    """Return format, ranks and devices in words."""
    recordings = analysis.recordings
    formats = ", ".join(dict.fromkeys(recording.format for recording in recordings))
    ranks = f"rank {recordings[0].rank or 0}" if len(recordings) == 1 else counted(len(recordings), "rank")
    models = [name for recording in recordings for name in recording.devices]
    again = sum(len(shared.processes) - 1 for shared in analysis.sharing)  # one device, seen by each of them
    devices = analysis.streams.select("rank", "device").n_unique() - again
    distinct = list(dict.fromkeys(models))
    kinds = ", ".join([*distinct[:MODELS], *(["…"] if len(distinct) > MODELS else [])])
    on = "CPU only" if wording_of(analysis).on_cpu else counted(devices, "device")
    return [formats, ranks, on + (f" ({kinds})" if kinds else "")]


def count_events(analysis: AnalysisResult) -> str:
    """Return the device events by activity."""
    words = {
        "kernel": (wording_of(analysis).work, None),
        "memcpy": ("copy", "copies"),
        "memset": ("memset", None),
        "graph": ("graph launch", "graph launches"),
    }
    counts = [(analysis.summary.events.get(activity, 0), *noun) for activity, noun in words.items()]
    return ", ".join(counted(*each) for each in counts if each[0]) or "no device events"


def _print_loops(analysis: AnalysisResult, page: TextPage) -> None:
    """Print the loops, similar ones of other ranks and devices only once, and which main streams have none."""
    groups = _group_alike(analysis.loops, choose_loop(analysis))
    spread, words = _has_places(analysis), wording_of(analysis)
    for number, (loop, *alike) in enumerate(groups[:LOOPS], 1):
        place = describe_place(loop.rank, loop.device, loop.stream, words) if spread else f"{words.lane} {loop.stream}"
        page.skip()
        title = f"{f'Loop {number}: ' if len(groups) > 1 else ''}1 iteration = {words.count(loop.period)} on {place}"
        page.line(title, "bold", hang=2)
        if alike:
            places = [describe_place(each.rank, each.device, None, words) for each in alike]
            more = f" and {len(places) - PLACES} more" if len(places) > PLACES else ""
            page.line(f"also on {'; '.join(places[:PLACES])}{more}", indent=2, hang=2)
        _print_loop(loop, page, words)
    hidden = len(groups) - LOOPS
    if hidden > 0:
        page.skip()
        page.line(f"and {counted(hidden, 'more loop')}; --format json has all of them", "dim")
    if analysis.missing:
        page.skip()
        _print_notes(map(words.speak, analysis.missing), page)


def _group_alike(loops: Iterable[Loop], chosen: Loop | None) -> list[list[Loop]]:
    """Return the loops in groups that run one program on several ranks or devices: `chosen`, or the slowest first."""
    groups: list[list[Loop]] = []
    for loop in loops:
        mine = next((group for group in groups if _is_alike(loop, group)), None)
        if mine is None:
            groups.append([loop])
        else:
            mine.append(loop)
    return [sorted(group, key=lambda each: (each is not chosen, -(find_mean(each) or 0.0))) for group in groups]


def _is_alike(loop: Loop, group: Iterable[Loop]) -> bool:
    """Return whether a loop has about as many kernels as those of the group, and is on another rank or device."""
    near = all(abs(loop.period - other.period) <= ALIKE * other.period for other in group)
    return near and all((loop.rank, loop.device) != (other.rank, other.device) for other in group)


def _has_places(analysis: AnalysisResult) -> bool:
    """Return whether the job has more than one rank, device or loop, so that each needs its place."""
    return len(analysis.loops) > 1 or analysis.streams.select("rank", "device").n_unique() > 1


def describe_place(rank: int, device: int | None, stream: int | None, words: Wording) -> str:
    """Return rank, device and stream in words, as far as they are available; a CPU is no device."""
    known = (("rank", rank), ("device", None if words.on_cpu else device), (words.lane, stream))
    return ", ".join(f"{word} {value}" for word, value in known if value is not None)


def _print_loop(loop: Loop, page: TextPage, words: Wording) -> None:
    """Print the data on one loop: how long it needs, a bar per iteration, and what uses the time."""
    for sentence in _describe_loop(loop, words):
        page.line(sentence, indent=2)
    page.skip()
    for row, style in draw_strip(loop.iterations, page.width - 2, ascii_only=page.ascii):
        page.line(row, style, indent=2)
    means = mean_parts(loop)
    if means:
        over = counted(loop.usual.height, "iteration")
        print_breakdown(f"where the time goes, mean of {over}", means, page, words.parts)
        print_loop_work(loop, means["exposed_communication_ns"], page, words)
    print_anatomy(loop, page, on_cpu=words.on_cpu)
    print_top(loop.top, page, words.work)


def _describe_loop(loop: Loop, words: Wording) -> Iterable[str]:
    spread = loop.metrics.iteration_ns
    median = f", median {format_duration(spread.median)}" if spread else ""
    partial = int((~loop.iterations["complete"]).sum())
    whole = f" of {loop.whole_iterations:,}" if loop.whole_iterations else ""
    found = f"{counted(loop.iterations.height, 'iteration')}{whole}" + (f" ({partial} incomplete)" if partial else "")
    warm = loop.metrics.warmup_excluded
    yield f"{found}{median}" + (f"; {counted(warm, 'warm-up iteration')} left out" if warm else "")
    for cycle in loop.cycles:
        extra, kind = cycle.get("extra_events", 0), cycle.get("kind", "unknown")
        work = f"{extra:+,} {verb(abs(float(extra)), words.unit, words.units)}"
        yield f"every {cycle.get('every')} iterations {work}" + ("" if kind == "unknown" else f" ({kind})")


def _print_findings(analysis: AnalysisResult, page: TextPage, limit: int | None) -> None:
    """Print the findings, the first `limit` of them."""
    page.skip()
    if not analysis.findings:
        page.line("No findings", "bold")
        for sentence in analysis.unexamined:
            page.line(f"not examined: {sentence}", indent=2, hang=2)
        return
    page.line("Findings", "bold")
    shown = analysis.findings[:limit]
    causes = [finding for finding in shown if finding.caused_by is None]
    for number, cause in enumerate(causes, 1):
        _print_finding(cause, page, number, _describe_cost(cause, analysis))
        _print_symptoms([f for f in shown if f.caused_by == cause.rule], page, " per iteration" * bool(analysis.loops))
        _print_repetitions(cause, analysis, page)
    _print_hidden([f for f in analysis.findings[len(shown) :] if f.rule != f.caused_by], page)
    _print_missing_lines(analysis, page)


def _print_hidden(findings: Sequence[Finding], page: TextPage) -> None:
    """Print the titles of the findings beyond the limit, symptoms only as a number."""
    if not findings:
        return
    page.line(f"{counted(len(findings), 'more finding')}; --all shows them in full", "dim", indent=2)
    for finding in [each for each in findings if each.caused_by is None][:TITLES]:
        page.line(f"{ICONS[finding.severity]} {finding.rule}: {finding.title}", "dim", indent=4, hang=2)


def _print_missing_lines(analysis: AnalysisResult, page: TextPage) -> None:
    """Print how to record functions, where a headline has no line of code because none were recorded."""
    headline, advice = analysis.headline, analysis.without_lines
    if headline is not None and headline.rule not in OF_NO_CODE and advice and "file" not in (headline.location or {}):
        page.line(f"no line of code is known because no functions were recorded; {advice}", "dim", indent=2, hang=2)


def _print_symptoms(symptoms: Iterable[Finding], page: TextPage, per: str) -> None:
    """Print what a cause explains, a line for every rule with the worst of its findings; costs are `per` iteration."""
    worst: dict[str, list[Finding]] = {}
    for finding in symptoms:
        if finding.rule != finding.caused_by:
            worst.setdefault(finding.rule, []).append(finding)
    for rule, (first, *others) in worst.items():
        cost = first.headroom_ns_per_iteration  # what its cause leaves
        share = f", {format_duration(cost)} more{per}" if cost else ""
        more = f"; {len(others)} more like it" if others else ""
        page.line(f"explains {rule}: {first.title}{share}{more}", "dim", indent=5, hang=2)


def _print_repetitions(cause: Finding, analysis: AnalysisResult, page: TextPage) -> None:
    """Print on which other main streams the same was found."""
    again, words = [f for f in analysis.findings if f.rule == f.caused_by == cause.rule], wording_of(analysis)
    places = list(dict.fromkeys(_describe_other_place(f, cause, words) for f in again if f.rank is not None))
    more = f" and {len(places) - PLACES} more" if len(places) > PLACES else ""
    if places:
        page.line(f"the same on {'; '.join(places[:PLACES])}{more}", "dim", indent=5, hang=2)


def _describe_other_place(finding: Finding, cause: Finding, words: Wording) -> str:
    """Return the place of a repetition, as seen from the place of `cause`."""
    if (finding.rank, finding.device) != (cause.rank, cause.device):
        return describe_place(finding.rank or 0, finding.device, None, words)
    return f"another loop of this {words.lane}" if finding.stream == cause.stream else f"{words.lane} {finding.stream}"


def _print_finding(finding: Finding, page: TextPage, number: int, costs: str) -> None:
    style = STYLES[finding.severity]
    page.line(f"{number}. {ICONS[finding.severity]} {finding.severity} {finding.rule}: {finding.title}", style, hang=5)
    page.line(finding.summary, indent=5)
    page.line(costs, indent=5)
    page.line(f"→ {finding.advice}", "green", indent=5, hang=2)


def _describe_cost(finding: Finding, analysis: AnalysisResult) -> str:
    """Return headroom, place and confidence in one line."""
    parts = []
    if finding.rule == STALLS and finding.evidence.get("share_ratio"):
        parts.append(f"{format_ratio(float(finding.evidence['share_ratio'] or 0))} of the time of all iterations")
    elif finding.headroom_ns_per_iteration is not None:
        share = _describe_share(finding.headroom_ns_per_iteration, find_time(finding, analysis))
        per = " per iteration" if analysis.loops else ""
        parts.append(f"up to {format_duration(finding.headroom_ns_per_iteration)}{per}{share}")
    if finding.rank is not None:
        device, stream = (finding.device, finding.stream) if _has_places(analysis) else (None, None)
        parts.append(describe_place(finding.rank, device, stream, wording_of(analysis)))
    if finding.iterations is not None:
        first, last = finding.iterations
        parts.append(f"iteration {first}" if first == last else f"iterations {first} to {last}")
    place = describe_location(finding.location or {}, wording_of(analysis))
    if place and place not in finding.title and place.split(" ", 1)[1] not in finding.summary:
        parts.append(f"in {place}")
    return " · ".join([*parts, f"confidence {format_confidence(finding.confidence)}"])


def _describe_share(headroom_ns: int, mean_ns: float | None) -> str:
    """Return the headroom as a share of the mean iteration, as in the table of parts; nothing where there is none."""
    return f" ({format_ratio(headroom_ns / mean_ns)})" if mean_ns else ""


def _print_unnamed(analysis: AnalysisResult, page: TextPage) -> None:
    """Print which large parts no finding names, and why, without the one that the answer is about."""
    in_answer = analysis.answer.loss is None and not any(
        "shorter_ns_per_iteration" in f.evidence for f in analysis.findings
    )
    for sentence in list(describe_unnamed(analysis))[in_answer:]:
        page.line(f"not explained: {sentence}", indent=2, hang=2)


def describe_unnamed(analysis: AnalysisResult) -> Iterator[str]:
    """Yield which large parts no finding names, and why; what several loops share only once."""
    told: dict[tuple[str, str], float] = {}
    for left in analysis.unnamed:
        told[left.part, left.why] = max(left.share, told.get((left.part, left.why), 0.0))
    for (part, why), share in told.items():
        yield f"{wording_of(analysis).parts[part]}, {format_ratio(share)}: {why}"


def print_breakdown(
    title: str, parts_ns: Mapping[str, float], page: TextPage, words: Mapping[str, str] = GPU_PARTS
) -> None:
    """Print the parts of a time, the largest first, with bars where the page is wide enough, else in sentences.

    `words` are the names of the parts.
    """
    whole = sum(parts_ns.values())
    if whole <= 0:
        return
    rows = _choose_rows(parts_ns, whole, words)
    label, number = max(len(name) for name, _ in rows), max(len(format_duration(ns)) for _, ns in rows)
    page.skip()
    page.line(title, "dim", indent=2)
    room = page.width - label - number - AROUND
    for name, ns in rows:
        if room < 0:
            page.line(f"{name}: {format_duration(ns)}, {format_ratio(ns / whole)}", indent=4, hang=2)
            continue
        text = f"{name:<{label}}  {format_duration(ns):>{number}}  {format_ratio(ns / whole):>7}"
        width = round(min(WIDEST, max(0, room)) * ns / whole)
        page.draw(f"{text}  {(ASCII_BAR if page.ascii else BAR) * width}".rstrip(), indent=4)


def _choose_rows(parts_ns: Mapping[str, float], whole: float, words: Mapping[str, str]) -> list[tuple[str, float]]:
    """Return the named parts, the largest first, small ones as one."""
    ordered = sorted(parts_ns.items(), key=lambda part: -part[1])
    large = [(words[name], ns) for name, ns in ordered if ns >= SMALL * whole]
    rest = whole - sum(ns for _, ns in large)
    return [*large, (OTHERS, rest)] if round(rest) > 0 else large


def draw_strip(iterations: pl.DataFrame, width: int, *, ascii_only: bool = False) -> Iterator[tuple[str, str]]:
    """Yield the strip's lines with their styles: the bars, the marks under them, and what they mean.

    `iterations` has the schema `metrics.iteration.ITERATIONS`. A cell that covers several iterations shows the longest
    of them, so that a single slow one is never hidden. Bars start at zero. Yields nothing without iterations.
    """
    if not iterations.height:
        return
    times, marks = _read_times(iterations), _read_marks(iterations)
    per_cell = -(-len(times) // max(width, 1))
    cells = [max(group, key=lambda time: time or 0) for group in split(times, per_cell)]
    longest = max((cell for cell in cells if cell), default=0)
    yield "".join(_pick_block(cell, longest, ascii_only) for cell in cells), "cyan"
    under = "".join(next((mark for mark in group if mark != " "), " ") for group in split(marks, per_cell))
    if under.strip():
        yield under.rstrip(), "dim"
    yield _explain(per_cell, longest, under), "dim"


def _read_times(iterations: pl.DataFrame) -> list[int | None]:
    """Return each iteration's own time: to the next one's start only where that follows directly."""
    return list((iterations["busy_ns"] + iterations["idle_ns"]).to_list())


def _read_marks(iterations: pl.DataFrame) -> list[str]:
    flags = zip(iterations["complete"].to_list(), iterations["warmup"].to_list(), strict=True)
    return [INCOMPLETE if not complete else WARMUP if warmup else " " for complete, warmup in flags]


def split(values: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield `values` in groups of `size`."""
    return (values[at : at + size] for at in range(0, len(values), size))


def _pick_block(time: int | None, longest: int, ascii_only: bool) -> str:
    blocks = ASCII_BLOCKS if ascii_only else BLOCKS
    if time is None or not longest:
        return NO_TIME
    return blocks[max(0, -(-time * len(blocks) // longest) - 1)]


def _explain(per_cell: int, longest: int, marks: str) -> str:
    cell = "1 iteration" if per_cell == 1 else f"the longest of {per_cell} iterations"
    words = [f"each bar is {cell}, the highest {format_duration(longest)}"]
    words += [f"{mark} = {word}" for mark, word in ((WARMUP, "warm-up"), (INCOMPLETE, "incomplete")) if mark in marks]
    return ", ".join(words)
