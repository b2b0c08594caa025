"""The device waits because a launching thread waits for another thread of its process.

That one holds a lock, or does the work whose result the launching thread needs. A launching thread that works itself
is `host_bound`."""

from __future__ import annotations

from collections.abc import Iterator

from deepprof.collectors.trace import Trace
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.host_work import find_awaited_by, name_work
from deepprof.diagnosis.judgement import FindingTexts, SeverityLimits
from deepprof.diagnosis.rule import rule
from deepprof.metrics.breakdown.other_threads import AwaitedThread
from deepprof.metrics.breakdown.program_places import Place
from deepprof.metrics.loop import Loop

PARTS = ("idle_host_ns",)
LIMITS = SeverityLimits(warning=0.15, critical=0.5)
LESS = (
    "Do not let the launching thread wait for it: {work} should hold locks only as long as needed, be done before its "
    "result is needed, or after the launches that do not depend on it. A thread that computes in Python holds the "
    "interpreter's lock (GIL), for which others wait; a process does not."
)
RECORD = "Record the stacks of all threads to see what it does (py-spy dump, nsys --trace=osrt --backtrace=dwarf)."
ENGINE_ADVICE = (
    "PyTorch computes gradients in threads of its own, and the one that calls backward() waits for them: record these "
    "threads as well (start the profiler before the first backward pass) to see what they do."
)


@rule("other-thread", parts=PARTS, limits=LIMITS, explains={"slow-iterations"}, delays_rank=True)
def other_thread(loop: Loop, trace: Trace) -> Iterator[Finding]:
    """Yield `other-thread` when the device idles while a launching thread waits for another thread."""
    claim = other_thread.claim(loop)
    awaited = None if claim is None else find_awaited_by(loop, trace)
    if claim is None or awaited is None:
        return
    texts = FindingTexts(
        title=_write_title(awaited),
        summary=(
            f"{claim.amount} the device is idle, and the thread that launches its work waits for another "
            f"thread{_describe(awaited)}."
        ),
        advice=_advise(awaited),
    )
    evidence = {"waits_in": _name(awaited.waits_in), "runs": _name(awaited.runs)}
    yield claim.conclude(texts, evidence, (awaited.runs or {}) | (awaited.waits_in or {}))


def _name(place: Place | None) -> str | None:
    return None if place is None else name_work(place)


def _write_title(awaited: AwaitedThread) -> str:
    runs = _name(awaited.runs)
    return "The launching thread waits for another thread" + ("" if runs is None else f", which runs {runs}")


def _describe(awaited: AwaitedThread) -> str:
    """Return in what it waits, and what the other thread runs, where available."""
    waits_in, runs = _name(awaited.waits_in), _name(awaited.runs)
    where = "" if waits_in is None else f" in {waits_in}"
    return where + ("; what that one does was not recorded" if runs is None else f", which runs {runs}")


def _advise(awaited: AwaitedThread) -> str:
    runs = _name(awaited.runs)
    if runs is None and "range" in (awaited.waits_in or {}):
        return ENGINE_ADVICE
    return f"{LESS.format(work=runs or 'what it does')} {RECORD if runs is None else ''}".rstrip()
