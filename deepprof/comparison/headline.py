"""One sentence on what changed: how much, in which part of the time most of it is, and where in the program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from deepprof.comparison.loop_changes import SAME
from deepprof.comparison.pairing import RunLoop
from deepprof.comparison.stage_changes import find_main_stage
from deepprof.metrics.breakdown.costs import spans_of_parts
from deepprof.metrics.breakdown.host_states import WAIT
from deepprof.metrics.breakdown.long_calls import ALLOCATOR
from deepprof.metrics.breakdown.program_places import find_calls, find_place
from deepprof.metrics.loop import Loop
from deepprof.metrics.series.statistics import bootstrap_change
from deepprof.plurals import counted
from deepprof.render.units import format_duration, format_ratio
from deepprof.render.wording import GPU, Wording
from deepprof.results.comparison_result import Headline, LoopPair, PartChange, ProgramChange

CALLS = {"idle_sync_ns": WAIT, "idle_allocator_ns": ALLOCATOR}
COLLECTIVE = ("nccl", "rccl")
TIMES = 2  # from this ratio on, a factor reads better than "118.3 % more"
# Parts that already state the stage.
SAYS_STAGE: Mapping[str, str] = MappingProxyType(
    {"idle_input_ns": "data loading", "exposed_communication_ns": "communication"}
)
ALL = 0.005  # apart from the whole: no less reads as all of it
MIN_SHARE_NAMED = 0.05  # of the change: a part that explains less of it is not worth naming


def nothing_to_compare(missing: Sequence[str]) -> Headline:
    """Return the headline of a comparison without pairs."""
    return Headline(f"Nothing can be compared: {'; '.join(missing) or 'no rank or device is in both runs'}.")


def sum_up(pairs: Sequence[LoopPair], a: RunLoop, b: RunLoop, words: Wording = GPU) -> Headline:
    """Return the headline, in `words`, of a comparison whose first pair, with details, is that of `a` and `b`."""
    pair = pairs[0]
    part = _main_part(pair)
    unsure = pair.time.verdict == "unclear" and pair.time.low is not None
    if part is not None and unsure and not _surely_changed(part.name, a.loop, b.loop):
        part = None
    stage, stage_share = _main_stage(pair, a.loop, b.loop)
    said = "" if stage is None or (part and SAYS_STAGE.get(part.name) == stage) else _describe_stage(stage, stage_share)
    sentences = [_describe_time(pairs, words, said), *map(words.speak, _describe_program(pair.program))]
    if pair.time.verdict == "same" or part is None:
        return Headline(" ".join(sentences), stage=stage, stage_share=stage_share)
    place = _find_where(pair, part, a if part.difference_ns < 0 else b)
    share = part.difference_ns / (pair.b_mean_ns - pair.a_mean_ns)
    sentences.insert(1, _describe_part(part, place, share, words))
    return Headline(" ".join(sentences), part.name, place, round(share, 4), stage, stage_share)


def _main_part(pair: LoopPair) -> PartChange | None:
    """Return the part that explains most of the change of the mean, None where the mean went the other way."""
    change = pair.b_mean_ns - pair.a_mean_ns
    if change * (pair.time.b_ns - pair.time.a_ns) <= 0:
        return None
    largest = max(pair.parts, key=lambda part: part.difference_ns * (1 if change > 0 else -1))
    return largest if largest.difference_ns / change >= MIN_SHARE_NAMED else None


def _main_stage(pair: LoopPair, a: Loop, b: Loop) -> tuple[str | None, float | None]:
    """Return the stage that holds most of the change of the mean, and its share; None where the mean does not state."""
    change = pair.b_mean_ns - pair.a_mean_ns
    found = find_main_stage(pair.stages, a, b)
    if found is None or pair.time.verdict == "same" or change * (pair.time.b_ns - pair.time.a_ns) <= 0:
        return None, None
    return found[0], round(found[1], 4)


def _describe_stage(stage: str, share: float | None) -> str:
    """Return what follows how much the time changed."""
    more = (
        ""
        if share is None
        else "all"
        if abs(share - 1) < ALL
        else "more than all"
        if share > 1
        else format_ratio(share)
    )
    return f", {more} of the change in {stage}"


def _surely_changed(part: str, a: Loop, b: Loop) -> bool:
    """Return whether a part of the time changed beyond chance, though the whole may not have."""
    interval = bootstrap_change(a.usual[part].fill_null(0), b.usual[part].fill_null(0), relative=False)
    return interval is not None and (interval[0] > 0 or interval[1] < 0)


def _describe_time(pairs: Sequence[LoopPair], words: Wording, stage: str) -> str:
    """Return how much the iteration time changed, in which `stage`, and whether that is sure."""
    pair = pairs[0]
    time, several = pair.time, len(pairs) > 1
    device = "" if words.on_cpu else f" device {pair.b.device},"
    where = f" on rank {pair.b.rank},{device} the slowest of {len(pairs)} pairs" if several else ""
    times = f"{format_duration(time.a_ns)} → {format_duration(time.b_ns)} per iteration{where}"
    if time.verdict == "same":
        what = "Nothing changed" if _is_unchanged(pair) else "The time did not change"
        return f"{what}: {times}, less than 1 % apart."
    more = f"{format_ratio(abs(time.ratio - 1))} {'more' if time.ratio > 1 else 'less'} time"
    more = f"{time.ratio:.3g} times as long" if time.ratio >= TIMES else more
    more += stage
    if time.verdict != "unclear":
        return f"B takes {more}: {times}."
    if time.low is not None:
        return f"B may take {more}: {times}, but iterations of one run differ as much."
    fewest = counted(min(time.a_iterations, time.b_iterations), "iteration")
    return f"B seems to take {more}: {times}, but {fewest} are too few to be sure."


def _is_unchanged(pair: LoopPair) -> bool:
    """Return whether the kernels are the same ones and no part of the time changed noticeably."""
    program = pair.program
    edited = program is not None and (program.problem or program.replaced or program.added or program.removed)
    return not edited and all(abs(part.difference_ns) < SAME * pair.a_mean_ns for part in pair.parts)


def _describe_part(part: PartChange, place: str | None, share: float, words: Wording) -> str:
    """Return the sentence on the part that explains most."""
    idle, _, cause = words.parts[part.name].partition(": ")
    amount = f"{format_duration(abs(part.difference_ns))} {'less' if part.difference_ns < 0 else 'more'}"
    where = (f" in {place}" if cause else f", most of all in {place}") if place else ""  # a kernel causes only a share
    explained = "more than all" if share > 1 else format_ratio(share)
    what = f"{cause}: {amount} idle time" if cause else f"{idle}: {amount}"
    return f"Mostly {what}{where}, {explained} of the change."


def _describe_program(program: ProgramChange | None) -> Iterable[str]:
    """Yield a sentence where the kernels are not the same ones."""
    if program is None:
        return
    if program.problem is not None:
        yield f"{program.problem[0].upper()}{program.problem[1:]}."
        return
    counts = (("replaced", program.replaced), ("added", program.added), ("removed", program.removed))
    said = [f"{count:,} {word}" for word, count in counts if count]
    if said:
        yield f"Of {counted(program.a_kernels, 'kernel')} on the main stream: {', '.join(said)}."


def _find_where(pair: LoopPair, part: PartChange, larger: RunLoop) -> str | None:
    """Return the place of a part in the run that has more of it; None where the trace does not show it."""
    if part.name == "compute_ns":
        another = pair.program is not None and pair.program.problem is not None  # kernels not comparable
        return None if another else _largest_kernel(pair, part, collective=False)
    if part.name == "exposed_communication_ns":
        return _largest_kernel(pair, part, collective=True)
    if part.name.startswith("exposed"):
        return None
    spans = spans_of_parts(larger.loop, (part.name,))
    calls = find_calls(larger.trace, CALLS[part.name], spans) if part.name in CALLS else None
    place = calls or find_place(larger.trace, spans) or {}
    step = larger.loop.agreement.name if larger.loop.agreement else None  # marks the iteration, not a place in it
    known = [str(place[word]) for word in ("call", "range", "operator", "frame") if word in place]
    return next((name for name in known if step is None or name.rstrip("0123456789#") != step.rstrip("#")), None)


def _largest_kernel(pair: LoopPair, part: PartChange, *, collective: bool) -> str | None:
    """Return the kernel whose time changed most in the part's direction."""
    sign = 1 if part.difference_ns > 0 else -1
    wanted = [row for row in pair.kernels if row.name.startswith(COLLECTIVE) == collective]
    largest = max(wanted, key=lambda row: sign * row.difference_ns, default=None)
    return None if largest is None or sign * largest.difference_ns <= 0 else largest.name
