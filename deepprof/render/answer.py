"""The answer first: what was recorded and what takes its time, what can be avoided and how, and how sure that is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from deepprof.collectors.names.short import shorten
from deepprof.diagnosis.answer import find_group, group_shares, matches, share_parts
from deepprof.diagnosis.engine import rules_on_work
from deepprof.diagnosis.work_claims import LEADS
from deepprof.metrics.completeness import MUCH_LOST, find_missing
from deepprof.metrics.contexts.frames import COUNTED, write_place
from deepprof.plurals import counted
from deepprof.render.units import format_confidence, format_duration, format_ratio
from deepprof.render.wording import wording_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from deepprof.diagnosis.answer import Group, RecordingAnswer
    from deepprof.diagnosis.finding import Finding
    from deepprof.metrics.breakdown.earlier_work import EarlierWork
    from deepprof.metrics.breakdown.outside import TimeOutside
    from deepprof.render.page import TextPage
    from deepprof.render.wording import Wording
    from deepprof.results.analysis_result import AnalysisResult

SENTENCE = re.compile(r"(?<=[A-Za-z)\]0-9]\.)\s+(?=[A-Z])")
SHARE = re.compile(r"^[\d.]+ %")
UNEVEN = 1.03  # ratio of mean to median above which both are printed: shares, right within 3 points, are of the mean
MINOR = 0.1  # of the time: what takes that much is named in the first line; smaller groups and parts are not
SHARE_DIGITS = 3  # of a share, which is printed in tenths of a percent
NEARLY_ALL = 0.95  # of a group, or of waits: its other parts are not worth a word
WHOLE = 0.8  # of a device's busy time, or of the recording: of iterations that cover less the share is given
MOST = 0.5  # of the time waited outside the iterations: a reason, or one wait, that represents all of it
MOMENT = 0.01  # of a start-up: what else is in the recording is no work of the program
FEW = 5  # iterations, below which more should be recorded
# Keys of a location, the most informative first.
PLACES = ("range", "operator", "call", "frame", "kernel")
NAME_LENGTH = 80  # characters of a range or operator; some recorders write whole dictionaries
UNKNOWN = "idle_unknown_ns"
RECORD_HOST = "record the runtime calls and functions of all the host's threads, for the whole time, which show it"
WORK_SHARE = "work_share_ratio"  # of the computing time: a finding's evidence, with which its title begins
MOST_ON_WORK = 3  # findings on computing in one line
KINDS = {
    "training loop": "A training loop of {count}, {time}",
    "loop": "A loop of {count}, {time}",
    "marked step": "{marks}{time}{devices}, without repeated iterations",
    "start-up": "The start-up of a program, {time}{devices} without repeated iterations",
    "benchmark": "A benchmark of {time}{devices} that runs the same few kernels repeatedly",
    "recording": "A recording of {time}{devices} without repeated iterations",
}
CAPTURE = "The start-up of a program that captures a graph, {time}{devices} without repeated iterations"
FIRST_USES = {
    "capture": "while a graph is captured",
    "pause": "most likely for a library that is read for its first use",
}
FIND_CAUSE = "Find what the host does in that time, and whether the job needs it."
RECORD_CAUSE = "Record the host's side too (runtime calls, ranges), which shows what the host does in that time."
RECORD_MORE = {
    "loop": "record ten iterations or more",
    "marked step": "record five steps or more",
    "": "record three iterations or more, marked as steps (profiler.step(), an NVTX range)",
}


def print_answer(analysis: AnalysisResult, page: TextPage) -> None:
    """Print three lines for a user who reads no further."""
    page.skip()
    for number, line in enumerate(describe_answer(analysis)):
        page.line(line, "bold" if number == 0 else "", hang=2)


def summarize_answer(analysis: AnalysisResult) -> str:
    """Return what was recorded, the largest parts of its time and the largest loss, without advice."""
    answer = analysis.answer
    loss = "" if answer.loss is None else f" {_describe_loss_itself(answer, answer.loss, analysis)}."
    return f"{_describe_head(answer, analysis)}{loss}"


def describe_answer(analysis: AnalysisResult) -> Iterator[str]:
    """Yield the lines of the answer."""
    answer = analysis.answer
    yield _describe_recorded(answer, analysis)
    if answer.kind == "no work" and answer.loss is None:
        return
    yield _describe_loss(answer, analysis)
    if sure := _describe_certainty(answer):
        yield sure


def _describe_recorded(answer: RecordingAnswer, analysis: AnalysisResult) -> str:
    """Return what was recorded, the largest parts of its time, and what a busy device computes."""
    head = _describe_head(answer, analysis)
    return head if answer.kind == "no work" else " ".join([head, *_describe_work(analysis, answer.loss)])


def _describe_head(answer: RecordingAnswer, analysis: AnalysisResult) -> str:
    """Return what was recorded and the largest parts of its time."""
    words = wording_of(analysis)
    if answer.kind == "no work":
        device = "device" + " that DeepProf reads" * _has_foreign_events(analysis)
        reason = words.speak(analysis.no_loop_reason or "").rstrip(".")
        return " ".join([f"No work of a {device} was recorded: {reason}.", *_describe_ranges(analysis)])
    if missing := _sum_missing(analysis):
        words = replace(words, groups={**words.groups, "waiting": "shows no work"}, reasons={})
    words = replace(words, reasons={**words.reasons, **dict(_find_first_use(analysis))})
    shares = _write_shares(answer.parts, words)
    head = f"{_describe_kind(answer)}: {words.actor} {shares}." if shares else f"{_describe_kind(answer)}."
    missed = ["The file has no accelerator's work."] if words.on_cpu else []
    more = (*_describe_waited(answer, analysis), *_describe_rest(answer, words), *_describe_outside(answer, words))
    return " ".join([head, *missed, *_describe_missing(missing), *more, *_describe_stall(answer)])


def _has_foreign_events(analysis: AnalysisResult) -> bool:
    return any(each.accounting.dropped.get("other-device") for each in analysis.recordings)


def _describe_ranges(analysis: AnalysisResult) -> Iterator[str]:
    """Yield a sentence on the ranges of the host, where there are any."""
    ranges = next((each.host_ranges for each in analysis.recordings if each.host_ranges), None)
    if ranges is not None:
        calls = f"{counted(ranges.calls, 'time')}, {format_duration(ranges.longest_ns)} in all"
        count = counted(ranges.count, "range")
        yield f"The host recorded {count} in {format_duration(ranges.span_ns)}, most in {ranges.longest} ({calls})."


def _sum_missing(analysis: AnalysisResult) -> tuple[int, int] | None:
    """Return how many dispatches are not in the files, and of how many; None where hardly any is missing."""
    found = [pair for each in analysis.recordings for pair in find_missing(each.notes)]
    missing, whole = (sum(numbers) for numbers in zip(*found, strict=True)) if found else (0, 0)
    return (missing, whole) if missing >= MUCH_LOST * whole > 0 else None


def _describe_missing(missing: tuple[int, int] | None) -> Iterator[str]:
    if missing is not None:
        share = format_ratio(missing[0] / missing[1])
        yield f"But {missing[0]:,} of {missing[1]:,} dispatches ({share}) are not in the file and may run meanwhile."


def _find_first_use(analysis: AnalysisResult) -> Iterator[tuple[str, str]]:
    """Yield the part of first uses with its reason in words, where that is another than loading code."""
    found = (FIRST_USES.get(str(finding.evidence.get("first_use"))) for finding in analysis.findings)
    yield from (("idle_first_use_ns", reason) for reason in found if reason)


def _write_shares(parts: Mapping[str, float], words: Wording) -> str:
    """Return what the device does most of the time by the shares `parts`, and what else takes one that is not minor."""
    groups = group_shares(parts)
    large = [group for number, group in enumerate(groups) if number == 0 or _is_large(groups[group])]
    of_all = dict.fromkeys(large[:1], " of the time")
    return _join([_write_share(group, groups[group], parts, words, of_all.get(group, "")) for group in large])


def _is_large(share: float) -> bool:
    return round(share, SHARE_DIGITS) >= MINOR


def _join(clauses: Sequence[str]) -> str:
    """Return the clauses of a sentence: `a`, `a, and b` or `a, b, and c`."""
    return ", and ".join(filter(None, [", ".join(clauses[:-1]), *clauses[-1:]]))


def _write_share(group: Group, share: float, parts: Mapping[str, float], words: Wording, of: str) -> str:
    """Return what the device does, its share `of` what, and what most of it is for."""
    inside = [part for part in parts if find_group(part) == group]
    named = [part for part in inside if part in words.reasons]
    large = [part for part in named if part == inside[0] or _is_large(parts[part])]
    does = f"{format_ratio(share)}{of}"
    if not large:
        return f"{words.groups[group]} {does}"
    if parts[large[0]] >= NEARLY_ALL * share:
        return f"{words.groups[group]} {words.reasons[large[0]]} {format_ratio(parts[large[0]])}{of}"
    reasons = ", ".join(f"{format_ratio(parts[part])} {words.reasons[part]}" for part in large)
    return f"{words.groups[group]} {does} ({reasons})"


def _describe_rest(answer: RecordingAnswer, words: Wording) -> Iterator[str]:
    """Yield a sentence on what a program does after its start, where the device waits for more than a moment."""
    rest_ns, shares = sum(answer.rest.values()), share_parts(answer.rest)
    waits = _is_large(group_shares(shares).get("waiting", 0.0))
    if answer.capture is None and rest_ns >= MOMENT * answer.whole_ns and waits:
        where = f"In the other {format_duration(rest_ns)}"
        yield f"{where} {words.actor} {_write_shares(shares, words)}."


def _describe_kind(answer: RecordingAnswer) -> str:
    """Return what was recorded, and how long an iteration or all of it needs."""
    loop = answer.loop
    if loop is None:
        marks = 1 if answer.step is None else answer.step.marks
        kind = CAPTURE if answer.kind == "start-up" and answer.capture is not None else KINDS[answer.kind]
        return kind.format(
            time=format_duration(answer.whole_ns),
            marks="One marked step of " if marks == 1 else f"One of {marks} marked steps, ",
            devices=f" ({_describe_devices(answer)})" * (len(answer.devices) > 1),
        )
    whole = counted(int(loop.iterations["complete"].sum()) or loop.iterations.height, "iteration")
    if not answer.whole_ns:
        return f"A loop of {whole}, none of them measured whole"
    return KINDS[answer.kind].format(count=whole, time=_describe_time(answer))


def _describe_time(answer: RecordingAnswer) -> str:
    """Return the median of an iteration's time, with the mean where that is longer, and of what both are means."""
    mean, median = answer.whole_ns, sum(each.median_ns for each in answer.devices) / len(answer.devices)
    notes = [f"the median; {format_duration(mean)} on average"] * (mean > UNEVEN * median)
    notes += [_describe_devices(answer)] * (len(answer.devices) > 1)
    return f"{format_duration(median)} each" + (f" ({'; '.join(notes)})" if notes else "")


def _describe_devices(answer: RecordingAnswer) -> str:
    return f"the mean of {len(answer.devices)} devices"


def _describe_outside(answer: RecordingAnswer, words: Wording) -> Iterator[str]:
    """Yield sentences on the time outside the iterations, where they are not nearly all of the recording."""
    loop, outside = answer.loop, answer.outside
    if loop is None or outside is None:
        return
    if min(loop.coverage_ratio, outside.inside_ratio) < WHOLE:
        which = "iterations after warm-up" if loop.iterations["warmup"].any() else "iterations"
        rest = _join(list(_list_places(outside)))
        share = format_ratio(outside.inside_ratio)
        yield f"The {which} are {share} of the recording{f'; the rest is mostly {rest}' if rest else ''}."
    if _is_large(outside.waited_ns / outside.recorded_ns):
        yield f"{_describe_waits(outside, words)}."


def _list_places(outside: TimeOutside) -> Iterator[str]:
    """Yield how much is before, between and after the iterations, where that is a good part of the recording."""
    for place, ns in outside.places.items():
        if _is_large(ns / outside.recorded_ns):
            yield f"{format_duration(ns)} {place} them ({format_ratio(ns / outside.recorded_ns)})"


def _describe_waits(outside: TimeOutside, words: Wording) -> str:
    """Return how long the device waits outside the iterations, for what, and how long at once where that is most."""
    part, ns = next(iter(outside.waits.items()))
    waits = f"{words.actor} {words.groups[find_group(part)]} {format_duration(outside.waited_ns)}"
    reason = f" {words.reasons[part]}" if ns >= MOST * outside.waited_ns and part in words.reasons else ""
    share = f"{format_ratio(outside.waited_ns / outside.recorded_ns)} of the recording"
    return f"Outside the iterations {waits}{reason} ({share}{_describe_longest(outside)})"


def _describe_longest(outside: TimeOutside) -> str:
    """Return how much of the waits outside the iterations is one wait, where that is most of them."""
    longest = outside.longest_wait_ns
    if longest < MOST * outside.waited_ns:
        return ""
    much = "nearly all" if longest >= NEARLY_ALL * outside.waited_ns else format_duration(longest)
    return f", {much} of it at once"


def _describe_waited(answer: RecordingAnswer, analysis: AnalysisResult) -> Iterator[str]:
    """Yield a sentence on the rank that ranks wait for while they seem to communicate, unless it is the loss itself."""
    named = (each for each in analysis.findings if (each.rule, each.caused_by) == ("communication-bound", "straggler"))
    late = next((each for each in analysis.findings if each.rule == "straggler"), None)
    if late is not None and late is not answer.loss and next(named, None) is not None:
        yield f"Most of the communication is waiting for rank {late.rank}, which is late."


def _describe_stall(answer: RecordingAnswer) -> Iterator[str]:
    """Yield a sentence on the iterations that use several times as long as the others."""
    loop = answer.loop
    if loop is None or loop.stalls.is_empty():
        return
    times, whole = loop.stalls["iteration_ns"], float(loop.measured["iteration_ns"].sum())
    first, count = loop.stalls["index"][0], loop.stalls.height
    which = f"Iteration {first} is a stall of" if count == 1 else f"{counted(count, 'iteration')} are stalls of up to"
    share = format_ratio(float(times.sum()) / whole)
    yield f"{which} {format_duration(float(times.max() or 0))}, {share} of the time of all."  # type: ignore[arg-type]


def _describe_work(analysis: AnalysisResult, loss: Finding | None) -> Iterator[str]:
    """Yield a sentence of the findings on what a busy device computes that are not the loss, if there are any."""
    about = (None,) * 3 if loss is None else (loss.rank, loss.device, loss.stream)
    on_work = rules_on_work()
    found = [
        finding
        for finding in analysis.findings
        if finding.rule in on_work
        and finding is not loss
        and finding.caused_by is None
        and float(finding.evidence.get("busy_ratio") or 0) >= LEADS
        and matches(about, (finding.rank or 0, finding.device or 0, finding.stream or 0))
    ]
    found.sort(key=lambda each: -float(each.evidence.get("kernel_ns_per_iteration") or 0))
    if found:
        answer = analysis.answer
        titles = "; ".join(_within_sentence(_write_title(answer, each, analysis)) for each in found[:MOST_ON_WORK])
        yield f"{titles[:1].upper()}{titles[1:]}."


def _describe_loss(answer: RecordingAnswer, analysis: AnalysisResult) -> str:
    """Return the largest avoidable loss and what to do, or that there is none."""
    loss = answer.loss
    if answer.outside is not None and answer.is_wait_larger:
        return _describe_longest_wait(answer.outside)
    if loss is None and answer.capture is not None:
        return _describe_capture(answer.capture)
    if loss is None:
        return _describe_masked(analysis) or _describe_none(answer, analysis)
    place = describe_location(loss.location or {}, wording_of(analysis))
    place = "" if place.partition(" ")[2] in loss.title else place
    what = f"{_describe_loss_itself(answer, loss, analysis)}{f', in {place}' if place else ''}"
    return f"{what}. What to do: {SENTENCE.split(loss.advice)[0]}"


def _describe_loss_itself(answer: RecordingAnswer, loss: Finding, analysis: AnalysisResult) -> str:
    return (
        f"The largest avoidable loss: {_within_sentence(_write_title(answer, loss, analysis))}{_describe_cost(answer)}"
    )


def _describe_cost(answer: RecordingAnswer) -> str:
    """Return what the loss costs and its share of the time that the answer is about."""
    loss, share, cost = answer.loss, answer.loss_ratio, answer.loss_ns
    if loss is not None and loss.rule == "slow-iterations":
        return f", {format_ratio(share)} of the time of all iterations"
    if cost:
        return f", up to {format_duration(cost)}" + (f" ({format_ratio(share)})" if share else "")
    return f", up to {format_ratio(share)} of the recording" if share else ""


def _write_title(answer: RecordingAnswer, finding: Finding, analysis: AnalysisResult) -> str:
    """Return a finding's title; its share of the computing time is the mean of the devices that the answer is about."""
    shares = [
        float(each.evidence.get(WORK_SHARE) or 0.0)
        for each in analysis.findings
        if each.rule == finding.rule and any(device.has(each) for device in answer.devices)
    ]
    if len(shares) < 2 or WORK_SHARE not in finding.evidence:
        return finding.title
    return SHARE.sub(format_ratio(sum(shares) / len(shares)), finding.title)


def _within_sentence(title: str) -> str:
    return title[:1].lower() + title[1:]


def describe_location(location: Mapping[str, int | str], words: Wording) -> str:
    """Return the most informative part of a finding's location in words, empty where it has none."""
    if location.get("file"):
        return write_place(location)
    known = next((key for key in PLACES if location.get(key) and not _is_step(str(location[key]))), None)
    if known is None:
        return ""
    if known == "kernel":
        return f"{words.work} {shorten(str(location[known]))}"
    return f"{known} {' '.join(str(location[known]).split())[:NAME_LENGTH]}"


def _is_step(name: str) -> bool:
    """Return whether a range marks steps, as ProfilerStep#7: all of an iteration is in it, so that it is no place."""
    return re.search(COUNTED, name) is not None or name.endswith("#*")


def _describe_masked(analysis: AnalysisResult) -> str:
    """Return a large cost that hides another one, so that removing only one of the two saves nothing; or nothing."""
    large = next((each for each in analysis.findings if "shorter_ns_per_iteration" in each.evidence), None)
    if large is None:
        return ""
    share = format_ratio(float(large.evidence["share_ratio"] or 0))
    return (
        f"No loss can be avoided by itself: {_within_sentence(large.title)} ({share}), but the host launches what "
        f"follows just in time. What to do: both. Launch less (graphs, fused kernels). "
        f"{SENTENCE.split(large.advice)[0]}"
    )


def _describe_unknown(answer: RecordingAnswer, analysis: AnalysisResult) -> str:
    """Return for what a device waits whose waits have no recognized cause, and what to record."""
    if answer.earlier is not None:
        return _describe_earlier(answer.earlier)
    lacks_host = any(each.lacks_host for each in analysis.stretches)
    return wording_of(analysis).reasons[UNKNOWN] + f". What to do: {RECORD_HOST}" * lacks_host


def _describe_earlier(earlier: EarlierWork) -> str:
    """Return for what a device waits that most likely was launched before the recording, and what to do."""
    meanwhile = "" if earlier.call is None else f", while the host waits in {earlier.call}"
    return (
        f"most likely for work from before the recording that is not in the file{meanwhile}. What to do: start the "
        "recording earlier, or wait for the device before"
    )


def _describe_capture(capture: Finding) -> str:
    """Return that no time of a capture can be avoided, and what to record instead."""
    advice = SENTENCE.split(capture.advice)[0]
    return f"No loss can be avoided: {_within_sentence(capture.title)}. What to do: {advice}"


def _describe_none(answer: RecordingAnswer, analysis: AnalysisResult) -> str:
    """Return the line where no loss is named: the cause is unknown, or all losses are small."""
    if _sum_missing(analysis):
        return "No loss can be judged: idle time may be work that is not in the file. What to do: record all of it."
    if analysis.unnamed:
        words, part = wording_of(analysis), analysis.unnamed[0]
        what = [words.groups[find_group(part.part)], format_ratio(part.share), words.reasons.get(part.part, "")]
        return f"The cause of the largest loss is unknown: {words.actor} {' '.join(filter(None, what))}; {part.why}."
    if (unknown := answer.parts.get(UNKNOWN, 0.0)) >= MINOR and answer.loop is None:
        words = wording_of(analysis)
        waits = f"{words.actor} {words.groups[find_group(UNKNOWN)]} {format_ratio(unknown)} of the time"
        return f"The cause of the largest loss is unknown: {waits} {_describe_unknown(answer, analysis)}."
    if answer.loop is None and answer.step is None and not any(each.parts for each in analysis.stretches):
        return "Too little work was recorded to identify an avoidable loss."
    if answer.loop is None:
        return "No loss with an identified cause costs 10 % of the time or more."
    computes = next(iter(answer.groups), None) == "computing"
    return f"No loss is large enough to report{': only faster computing would shorten an iteration' * computes}."


def _describe_longest_wait(outside: TimeOutside) -> str:
    """Return the line where the largest loss is one wait outside the iterations."""
    share, known = format_ratio(outside.longest_wait_ns / outside.recorded_ns), next(iter(outside.waits)) != UNKNOWN
    wait = f"The largest loss is one wait of {format_duration(outside.longest_wait_ns)} outside the iterations"
    return f"{wait} ({share} of the recording). What to do: {FIND_CAUSE if known else RECORD_CAUSE}"


def _describe_certainty(answer: RecordingAnswer) -> str:
    """Return how sure the answer is, and what would make it surer."""
    known = []
    if answer.loop is not None:
        known.append(f"{format_confidence(answer.loop.confidence)} in the iterations")
    if answer.loss is not None:
        known.append(f"{format_confidence(answer.loss.confidence)} in the loss")
    more = _advise_recording(answer)
    sure = f"Confidence: {', '.join(known)}." if known else ""
    return " ".join(filter(None, [sure, f"For a more certain answer, {more}." if more else ""]))


def _advise_recording(answer: RecordingAnswer) -> str:
    """Return what to record for a surer answer, empty where nothing is missing."""
    loop = answer.loop
    if loop is None:
        return RECORD_MORE.get(answer.kind, RECORD_MORE[""])
    if loop.usual.height < FEW:
        return RECORD_MORE["loop"]
    return ""
