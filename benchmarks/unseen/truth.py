"""The truth of a recording: from the schedule played with every cause and without it, never from an analysis."""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from benchmarks.unseen.parts import Windows, divide, divide_host, to_shares
from benchmarks.unseen.played import Played
from benchmarks.unseen.playing import COPY_CAUSES, play
from benchmarks.unseen.recording import keep
from benchmarks.unseen.sketch import Recorder, Sketch
from benchmarks.unseen.steps import Call, Copy, Launch, Mark, Meet, Sync, Work
from benchmarks.unseen.vocabulary import (
    ALLOCATION,
    BLOCKED_CALL,
    CAUSES,
    COMMUNICATION,
    DATA_LOADING,
    FIRST_USE,
    HOST_SIDE,
    HOST_WORK,
    LATE_RANK,
    LATE_SUBMISSION,
    LAUNCHING,
    MARKED_STEP,
    NOTHING,
    OTHER_THREAD,
    STALL,
    START_UP,
    SYNCHRONIZATION,
    UNKNOWN,
)

__all__ = ["LEAST", "NEGLIGIBLE", "Truth", "View", "find_truth"]

NEGLIGIBLE, LEAST = 0.05, 0.12  # of the base: below nothing is worth a word, from here on it must be stated
LISTED = 0.001
CLOSE = 1.5  # between the shares of two causes that may both be named
MIDDLE = (0.25, 0.75)  # of the iterations by their length: the usual ones
BY_CALLS = (SYNCHRONIZATION, BLOCKED_CALL, ALLOCATION, LATE_SUBMISSION, FIRST_USE)  # what only calls show
AFTER = {  # what is left out first
    LAUNCHING: frozenset(HOST_SIDE) - {LAUNCHING} | {LATE_RANK, STALL},
    SYNCHRONIZATION: frozenset({LATE_SUBMISSION, BLOCKED_CALL, ALLOCATION, FIRST_USE, LATE_RANK, STALL}),
}
Play = Callable[[frozenset[str]], list[Played]]


@dataclass(frozen=True)
class View:
    """Shares of one base: `parts` of its time, and `causes` with what each costs that could be avoided.

    `whole` are the same causes as shares of the whole recording, by which those are compared that happen once and
    those of every iteration; empty where the causes have one base.
    """

    base: str
    parts: Mapping[str, float]
    causes: Mapping[str, float]
    whole: Mapping[str, float] = field(default_factory=dict)

    @property
    def compared(self) -> Mapping[str, float]:
        """The causes with shares that can be compared."""
        return self.whole or self.causes

    @property
    def largest(self) -> str:
        """The cause that costs most; "" where none is worth a word."""
        named = max(self.compared, key=lambda cause: self.compared[cause], default=NOTHING)
        return named if self.compared.get(named, 0.0) >= LEAST else NOTHING

    @property
    def clear(self) -> bool:
        """Whether the largest cause is outside the grey zone."""
        return not NEGLIGIBLE < max(self.compared.values(), default=0.0) < LEAST


@dataclass(frozen=True)
class Truth:
    """What is true of a recording. `views` are the bases of which a share can be meant, the best first.

    `counts` are the numbers of iterations that are true, the best first, `period_ns` how long a usual one takes.
    `also` are other true names of the kind, `acceptable` causes that may be named as well.
    """

    kind: str
    also: tuple[str, ...]
    counts: tuple[int, ...]
    period_ns: int
    views: tuple[View, ...]
    acceptable: frozenset[str]

    @property
    def loops(self) -> int:
        """The true number of iterations."""
        return self.counts[0]

    @property
    def parts(self) -> Mapping[str, float]:
        """The parts of the best base."""
        return self.views[0].parts

    @property
    def causes(self) -> Mapping[str, float]:
        """The causes, as shares of the best base."""
        return self.views[0].causes


def find_truth(sketch: Sketch) -> Truth:
    """Return the truth of a sketch."""
    seen: dict[frozenset[str], list[Played]] = {}

    def played(without: frozenset[str]) -> list[Played]:
        if without not in seen:
            seen[without] = play(sketch.programs, without)
        return seen[without]

    bases = bases_of(sketch)
    views = compare([view for base in bases for view in look(base, sketch, played)])
    period = period_of(played(frozenset())) if sketch.base == "iteration" else 0
    acceptable = acceptable_of(views[0], sketch)
    return Truth(sketch.kind, sketch.also, sketch.counts, round(period), views, acceptable)


def compare(views: Sequence[View]) -> tuple[View, ...]:
    """Return the views; on an iteration with the shares of the whole recording, where there is such a view."""
    whole = next((view.causes for view in views if view.base == "recording"), {})
    return tuple(replace(view, whole=whole) if view.base == "iteration" else view for view in views)


def bases_of(sketch: Sketch) -> tuple[str, ...]:
    """Return what shares can be of. What passes before the first kernel belongs to a start, and to its answer."""
    if sketch.base == "iteration":
        more = works_of(sketch, STALL) or len(sketch.programs) > 1
        return ("iteration", "recording", "device") if more else ("iteration",)
    marked = any(isinstance(step, Mark) for step in sketch.programs[0].steps) and sketch.kind == MARKED_STEP
    whole = ("recording",) if sketch.kind == START_UP else ("recording", "device")
    return ("marked", *whole) if marked else whole


def look(base: str, sketch: Sketch, played: Play) -> list[View]:
    """Return the view on one base; of several devices, each one's parts are true as well."""
    recorder = sketch.recorder
    whole = [keep(each, recorder) for each in played(frozenset())]
    if base == "device" and not any(each.device for each in whole):
        return []
    causes = measure_causes(base, sketch, played)
    numbers = sorted({row.device for each in whole for row in each.device}) or [-1]
    alone = [parts_of(base, whole, [number]) for number in numbers]
    every = parts_of(base, whole, numbers)
    return [View(base, parts, causes) for parts in (every, *(alone if len(numbers) > 1 else ()))]


def measure_causes(base: str, sketch: Sketch, played: Play) -> dict[str, float]:
    """Return what each cause costs of a base, under the name by which the recording can show it."""
    groups: dict[str, set[str]] = {}
    hidden = hidden_in(sketch)
    for cause in CAUSES:
        if cause not in (NOTHING, UNKNOWN):
            groups.setdefault(hidden.get(cause, cause), set()).add(cause)
    present = find_present(sketch)
    real = {name: group for name, group in groups.items() if group & present}
    sizes = {name: measure_group(base, group, sketch.recorder, played) for name, group in real.items()}
    return {name: share for name, share in sizes.items() if share > LISTED}


def find_present(sketch: Sketch) -> set[str]:
    """Return the causes that can cost something in the programs: what does not occur need not be left out."""
    steps = [step for program in sketch.programs for step in program.steps]
    copies = [step for step in steps if isinstance(step, Copy)]
    found = {step.cause for step in steps if isinstance(step, Work | Call)} | {LAUNCHING}
    found |= {COPY_CAUSES[step.direction] for step in copies}
    found |= {SYNCHRONIZATION} if any(isinstance(step, Sync) for step in steps) else set()
    found |= {SYNCHRONIZATION} if any(step.blocking for step in copies) else set()
    found |= {BLOCKED_CALL} if any(isinstance(step, Launch | Copy) and step.slow_ns for step in steps) else set()
    found |= {LATE_SUBMISSION} if any(isinstance(step, Launch) and step.late_ns for step in steps) else set()
    found |= {COMMUNICATION} if any(isinstance(step, Meet) for step in steps) else set()
    return found | ({LATE_RANK} if any(program.late for program in sketch.programs) else set())


def measure_group(base: str, group: set[str], recorder: Recorder, played: Play) -> float:
    """Return what causes cost together.

    Waiting and launching are what is left to gain once nothing else holds the host back: idle time after a wait is
    due to that one, and the time until a slow submission is not due to the wait before it.
    """
    before = next((others for cause, others in AFTER.items() if group == {cause}), frozenset[str]())
    base = "recording" if base == "iteration" and is_once(group, played) else base
    kept = [[keep(each, recorder) for each in played(without)] for without in (frozenset(), before, before | group)]
    whole, first, after = (length_of(base, each, kept[0]) for each in kept)
    return max(0.0, (first - after) / whole)


def is_once(group: set[str], played: Play) -> bool:
    """Return whether causes happen once and not in every iteration: they cost a share of the whole recording."""
    late = [each.late for each in played(frozenset())]
    return group == {STALL} or (group == {LATE_RANK} and any(late))


def hidden_in(sketch: Sketch) -> dict[str, str]:
    """Return under which name the recording shows each cause that it cannot show as what it is."""
    recorder = sketch.recorder
    blind = not recorder.host or not (recorder.calls or recorder.operators)
    hidden = dict.fromkeys(HOST_SIDE if blind else () if recorder.calls else BY_CALLS, UNKNOWN)
    if not recorder.correlated:
        hidden[LATE_SUBMISSION] = UNKNOWN
    for cause in (DATA_LOADING, OTHER_THREAD):
        shown = [is_shown(step, recorder) for step in works_of(sketch, cause)]
        if any(shown):
            hidden.pop(cause, None)
        elif shown or not recorder.ranges:
            hidden.setdefault(cause, HOST_WORK)
    return hidden


def works_of(sketch: Sketch, cause: str) -> list[Work]:
    """Return the work of hosts that has a cause."""
    steps = (step for program in sketch.programs for step in program.steps)
    return [step for step in steps if isinstance(step, Work) and step.cause == cause]


def is_shown(step: Work, recorder: Recorder) -> bool:
    """Return whether a recorder keeps the row of some work."""
    kept = {
        "operator": recorder.operators,
        "loader": recorder.ranges,
        "range": recorder.ranges,
        "frame": recorder.frames,
        "system": recorder.system,
    }
    return recorder.host and (kept.get(step.shown, False) or bool(step.holder and recorder.frames))


def length_of(base: str, played: Sequence[Played], reference: Sequence[Played]) -> float:
    """Return how long a base is; a recording begins at the step at which that of the `reference` does."""
    if base == "iteration":
        return period_of(played)
    if base == "marked":
        return bounds_of(played)[1] - played[0].marks[0][1]
    if base == "device" or not any(each.host or each.ranges for each in reference):
        return sum(end - begin for begin, end in device_spans(played).values())
    first, _ = bounds_of(reference)
    places = [max(0, bisect_right(each.clocks, first) - 1) for each in reference]
    begin = min(each.clocks[place] for each, place in zip(played, places, strict=True))
    return bounds_of(played)[1] - begin


def period_of(played: Sequence[Played]) -> float:
    """Return the median time of an iteration, of all processes."""
    return statistics.median(after - begin for each in played for begin, after in pairwise(each.starts()))


def bounds_of(played: Sequence[Played]) -> tuple[int, int]:
    """Return the first and the last time of a recording."""
    bounds = [each.bounds() for each in played]
    return min(begin for begin, _ in bounds), max(end for _, end in bounds)


def device_spans(played: Sequence[Played]) -> dict[int, tuple[int, int]]:
    """Return from when to when each device has work."""
    spans: dict[int, tuple[int, int]] = {}
    for row in (row for each in played for row in each.device):
        begin, end = spans.get(row.device, (row.start, row.end))
        spans[row.device] = min(begin, row.start), max(end, row.end)
    return spans


def parts_of(base: str, played: Sequence[Played], numbers: Sequence[int]) -> dict[str, float]:
    """Return the parts of the time of those devices."""
    if numbers == [-1]:
        return host_parts(base, played[0])
    sums: dict[str, int] = {}
    for number in numbers:
        rows = [row for each in played for row in each.device if row.device == number]
        own = [each for each in played if any(row.device == number for row in each.device)]
        for part, ns in divide(rows, windows_of(base, own, played, number)).items():
            sums[part] = sums.get(part, 0) + ns
    return to_shares(sums)


def windows_of(base: str, own: Sequence[Played], every: Sequence[Played], number: int) -> Windows:
    """Return the sections of time that a base means on one device."""
    if base == "iteration":
        return usual_iterations(own[0].starts())
    if base == "marked":
        return [(own[0].marks[0][1], bounds_of(own)[1])]
    return [device_spans(own)[number] if base == "device" else bounds_of(every)]


def host_parts(base: str, played: Played) -> dict[str, float]:
    """Return the parts of a recording without work on a device; none where it has no operators either."""
    if not any(row.category == "op" for row in played.host):
        return {}
    windows = usual_iterations(played.starts()) if base == "iteration" else [played.bounds()]
    return to_shares(divide_host(played.host, windows))


def usual_iterations(starts: Sequence[int]) -> Windows:
    """Return the iterations that are about as long as the median one."""
    ordered = sorted(pairwise(starts), key=lambda window: window[1] - window[0])
    first, last = (round(share * len(ordered)) for share in MIDDLE)
    return ordered[first : max(first + 1, last)]


def acceptable_of(view: View, sketch: Sketch) -> frozenset[str]:
    """Return the causes that may be named: close to the largest one, or the same in what was recorded."""
    hidden = hidden_in(sketch)
    if view.largest == NOTHING:
        return frozenset(sketch.spoken)
    close = find_close(view.compared) | find_close(view.causes)
    behind = {cause for cause, name in hidden.items() if name in close}
    unseen = not all(is_shown(step, sketch.recorder) for cause in close for step in works_of(sketch, cause))
    unsure = unseen or not sketch.recorder.calls
    return frozenset(close | behind | set(sketch.spoken) | ({UNKNOWN} if unsure else set()))


def find_close(causes: Mapping[str, float]) -> set[str]:
    """Return the causes that are about as large as the largest one."""
    top = max(causes.values(), default=0.0)
    return {cause for cause, share in causes.items() if share * CLOSE >= top}
