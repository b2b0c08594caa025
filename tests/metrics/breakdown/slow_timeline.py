"""Where a device's time goes, found a nanosecond at a time from the definitions: the truth for `timeline`.

Times are small and so are the limits (`SMALL_LIMITS`), so that every kind of gap comes up.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from deepprof.collectors.trace import Trace

STARTUP, HANDOFF, LATENCY, MOST_LATENCY, PAUSE, HELD, FEW, GRAPH, FILLED = 4, 7, 3, 6, 9, 5, 1, 30, 8
HELD_BACK, LATE = 8, 25
SMALL_LIMITS = {
    "gaps": {
        **{"STARTUP_NS": STARTUP, "HANDOFF_NS": HANDOFF, "LATENCY_NS": LATENCY, "MOST_LATENCY_NS": MOST_LATENCY},
        **{"HELD_BACK_NS": HELD_BACK, "LATE_NS": LATE},
    },
    "host_states": {"HELD_NS": HELD, "MAX_LOADER_KERNELS": FEW},
    "pauses": {"PAUSE_NS": PAUSE, "SHORT_PAUSE_NS": PAUSE},
    "timeline": {"WHOLE_GRAPH": GRAPH, "HELD_BACK_NS": HELD_BACK, "FILLED_NS": FILLED},
}
COPIES = {"HtoD": "exposed_htod_ns", "DtoH": "exposed_dtoh_ns", "DtoD": "exposed_dtod_ns", "PtoP": "exposed_ptop_ns"}
ORDER = ("compute_ns", "exposed_communication_ns", *COPIES.values(), "exposed_copy_ns", "exposed_memset_ns")
UNEXPLAINED = "unexplained"  # by the records of the device, or of the launch
BY_HOST = ("idle_launch_ns", "idle_input_ns", "idle_sync_ns", "idle_allocator_ns", "idle_host_ns")
Row = dict[str, Any]


@contextmanager
def small_limits() -> Iterator[None]:
    """Make the limits of the code under test as small as this module's."""
    with ExitStack() as stack:
        for module, values in SMALL_LIMITS.items():
            stack.enter_context(patch.multiple(f"deepprof.metrics.breakdown.{module}", **values))
        yield


@dataclass
class Slow:
    """One device of a trace, row by row."""

    trace: Trace
    device: int = 0

    def __post_init__(self) -> None:
        rows = self.trace.device_events.rows(named=True)
        self.events = [r for r in rows if r["device"] == self.device and r["activity"] != "sync"]
        self.waits = [r for r in rows if r["device"] == self.device and "Wait Event" in self.name(r)]
        self.calls: dict[int, Row] = {}
        for row in self.trace.host_events.rows(named=True):
            if row["category"] == "runtime" and row["correlation"] is not None:
                self.calls.setdefault(row["correlation"], row)
        self.first = min((r["start_ns"] for r in self.events), default=0)
        self.last = max((r["end_ns"] for r in self.events), default=0)
        self.latency = self.shortest_latency()
        self.host = Threads(self)

    def name(self, row: Row) -> str:
        """Return a row's name."""
        return self.trace.name(row["name_id"])

    def launch(self, row: Row) -> Row | None:
        """Return the call that launched an event."""
        return self.calls.get(row["correlation"]) if row["correlation"] is not None else None

    def shortest_latency(self) -> int:
        """Return the 5th percentile of the times from launch to start, where it is a likely one."""
        known = sorted(r["start_ns"] - call["start_ns"] for r in self.events if (call := self.launch(r)))
        if not known:
            return LATENCY
        at = 0.05 * (len(known) - 1)
        low = int(at)
        high = min(low + 1, len(known) - 1)
        found = int(known[low] + (known[high] - known[low]) * (at - low))
        return found if found <= MOST_LATENCY else LATENCY

    def busy_part(self, row: Row) -> str:
        """Return what an event is."""
        if row["activity"] == "memcpy":
            return COPIES.get(row["copy_kind"], "exposed_copy_ns")
        if row["activity"] == "memset":
            return "exposed_memset_ns"
        collective = row["activity"] == "kernel" and self.name(row).startswith("nccl")
        return "exposed_communication_ns" if collective else "compute_ns"

    def parts(self) -> dict[int, str]:
        """Return whose every nanosecond is, after late launches were put down to the waits that cause them."""
        found = self.explain({t: self.part(t) for t in range(self.first, self.last)})
        launches = [(row, call) for row in self.events if (call := self.launch(row))]
        filled = [call["start_ns"] for row, call in launches if row["start_ns"] - call["start_ns"] > FILLED]
        late = {t for t, name in found.items() if name == "idle_launch_ns"}
        lead, due = 0, set[int]()
        for t in range(min(self.host.waiting, default=self.last), self.last):
            if t in self.host.waiting:
                lead += found.get(t) in ORDER
            elif t in filled:
                lead = 0
            if t in late and t in self.host.waiting:
                due.add(t)
            elif t not in self.host.waiting and found.get(t) in BY_HOST and lead:
                lead -= 1
                if t in late:
                    due.add(t)
        return found | dict.fromkeys(due if self.host.known else (), "idle_sync_ns")

    def explain(self, found: dict[int, str]) -> dict[int, str]:
        """Return the parts with those of the unexplained time: the driver's, the device's own, or unknown."""
        unexplained = {t for t, name in found.items() if name == UNEXPLAINED}
        waited = sorted(unexplained & self.host.waiting) if self.host.known else []
        short = {t for run in runs(waited) if len(run) <= HELD_BACK for t in run}
        late = unexplained & self.handed_over() if self.host.known else set()
        return (
            found
            | dict.fromkeys(unexplained, "idle_unknown_ns")
            | dict.fromkeys(short, "idle_startup_ns")
            | dict.fromkeys(late, "idle_submission_ns")
        )

    def handed_over(self) -> set[int]:
        """Return when the driver holds back what was launched on an idle device."""
        driver, others = set[int](), 0
        gaps = list(self.find_gaps())
        for held, until, call, explained in gaps:
            rest = until - held
            if explained or rest <= HELD_BACK:
                continue
            if 5 * rest < 4 * (until - call["end_ns"]):
                others += rest
            elif rest <= LATE:
                driver.update(range(held, until))
        prompt = any(until - call["start_ns"] <= MOST_LATENCY for _, until, call, _ in gaps)
        return driver if len(driver) >= others and (prompt or self.ends_with_waits()) else set()

    def ends_with_waits(self) -> bool:
        """Return whether most of the longer waits end when the device has just become idle."""
        ends = [run[-1] + 1 for run in runs(sorted(self.host.waiting)) if len(run) > HELD_BACK]
        busy = {t for r in self.events for t in range(r["start_ns"], r["end_ns"])}
        since = [end - max((t + 1 for t in busy if t < end), default=-self.last) for end in ends]
        idle = [end not in busy or end - 1 not in busy for end in ends]
        return 2 * sum(free and ago <= HELD_BACK for free, ago in zip(idle, since, strict=True)) > len(ends)

    def find_gaps(self) -> Iterator[tuple[int, int, Row, bool]]:
        """Yield since when work is ready in each gap, its end, its launch, and whether streams or device explain it."""
        for number, row in enumerate(self.events):
            until, call = row["start_ns"], self.launch(row)
            since = max((r["end_ns"] for r in self.events[:number]), default=until)
            if call is not None and since < until:
                ready = max(call["end_ns"], call["start_ns"] + self.latency + self.latency // 2)
                held = since if ready < since else min(max(ready, min(max(call["start_ns"], since), until)), until)
                yield held, until, call, self.device_part(held, since, until, row) != UNEXPLAINED

    def part(self, t: int) -> str:
        """Return whose the nanosecond from `t` is."""
        running = {self.busy_part(r) for r in self.events if r["start_ns"] <= t < r["end_ns"]}
        if running:
            return next(name for name in ORDER if name in running)
        until = min(r["start_ns"] for r in self.events if r["start_ns"] > t)
        since = max(r["end_ns"] for r in self.events if r["start_ns"] < until)
        ending = next(r for r in self.events if r["start_ns"] == until)
        return self.idle_part(t, since, until, ending)

    def idle_part(self, t: int, since: int, until: int, ending: Row) -> str:
        """Return why the device is idle at `t`, in the gap [since, until) that `ending` ends."""
        call = self.launch(ending)
        if call is None:
            return UNEXPLAINED
        ready = max(call["end_ns"], call["start_ns"] + self.latency + self.latency // 2)
        if ready < since:
            return self.device_part(since, since, until, ending)
        if t < call["start_ns"]:
            return self.host.part(t)
        held = min(max(ready, min(max(call["start_ns"], since), until)), until)
        return "idle_launch_ns" if t < held else self.device_part(held, since, until, ending)

    def device_part(self, held: int, since: int, until: int, ending: Row) -> str:
        """Return why the device lets work wait that is ready from `held` on."""
        before = [r for r in self.events if r["start_ns"] < until and r["end_ns"] == since]
        position = {id(r): i for i, r in enumerate(self.events)}
        same = max(before, key=lambda r: position[id(r)])["stream"] == ending["stream"]
        if same and until - held <= STARTUP:
            return "idle_startup_ns"
        spent = sum(self.stream_waits(ending["stream"], t) for t in range(held, until))
        if (not same and until - held <= HANDOFF) or 2 * spent > until - held:
            return "idle_dependency_ns"
        return UNEXPLAINED

    def stream_waits(self, stream: int, t: int) -> bool:
        """Return whether a recorded wait of the stream is over `t`."""
        return any(r["stream"] == stream and r["start_ns"] <= t < r["end_ns"] for r in self.waits)

    def totals(self, start: int, end: int) -> dict[str, int]:
        """Return the time of every part that occurs in [start, end)."""
        found: dict[str, int] = {}
        parts = self.parts()
        for t in range(max(start, self.first), min(end, self.last)):
            name = parts[t]
            found[name] = found.get(name, 0) + 1
        return found


class Threads:
    """What the threads that launch on a device were doing at a time."""

    def __init__(self, slow: Slow) -> None:
        calls = [
            (r, slow.launch(r))
            for r in slow.events
            if r["activity"] in ("kernel", "graph") and slow.launch(r) is not None
        ]
        kernels: Counter[tuple[int, int]] = Counter()
        for number in {r["correlation"] for r, _ in calls}:
            launched = [(r, call) for r, call in calls if r["correlation"] == number]
            whole = any(r["activity"] == "graph" for r, _ in launched)
            call = launched[0][1] or {}
            kernels[call["process"], call["thread"]] += GRAPH if whole else len(launched)
        threads = {thread for thread, count in kernels.items() if 20 * count >= max(kernels.values())}
        self.known = bool(threads)
        begun = [(call["start_ns"], GRAPH if r["activity"] == "graph" else 1) for r, call in calls if call]
        rows = slow.trace.host_events.rows(named=True)
        own = [r for r in rows if r["category"] == "runtime" and (r["process"], r["thread"]) in threads]
        done = {r["correlation"]: r["end_ns"] for r in slow.trace.device_events.rows(named=True) if is_copy(r)}
        waits = [
            r
            for r in own
            if self.is_wait(slow.name(r), r["end_ns"] - r["start_ns"])
            or ("Memcpy" in slow.name(r) and r["end_ns"] >= done.get(r["correlation"], r["end_ns"] + 1))
        ]
        loads = [
            r
            for r in slow.trace.annotations.rows(named=True)
            if (r["process"], r["thread"]) in threads and "dataload" in slow.name(r).lower() and r["end_ns"] is not None
        ]
        self.input = moments(r for r in loads if sum(n for t, n in begun if r["start_ns"] <= t < r["end_ns"]) <= FEW)
        self.recorder = moments(r for r in rows if r["category"] == "overhead")
        self.allocator = moments(r for r in own if re.match("cudaMalloc|hipFree", slow.name(r)))
        self.waiting, self.calling = moments(waits), moments(own)
        self.builds = moments(r for r in own if "ModuleLoad" in slow.name(r))
        self.first, self.last = slow.first, slow.last

    def is_long_pause(self, t: int) -> bool:
        """Return whether `t` is in a pause that is too long for launching."""
        pause = self.pause(t)
        return pause is not None and pause[1] - pause[0] > PAUSE

    def is_wait(self, name: str, length: int) -> bool:
        """Return whether the host waits in a call."""
        copies = re.match("(cuda|hip|cu)Mem(cpy|set)", name) is not None
        return "Synchronize" in name or (copies and ("Async" not in name or length > HELD))

    def pause(self, t: int) -> tuple[int, int] | None:
        """Return the pause between two calls around `t`."""
        if t in self.calling or not self.calling or not min(self.calling) < t < max(self.calling):
            return None
        return max(c for c in self.calling if c < t) + 1, min(c for c in self.calling if c > t)

    def is_away(self, t: int) -> bool:
        """Return whether `t` is in a long time before the threads' first call, or after the last."""
        if not self.calling:
            return self.last - self.first > PAUSE
        first, last = min(self.calling), max(self.calling) + 1
        return (t < first and first - self.first > PAUSE) or (t >= last and self.last - last > PAUSE)

    def part(self, t: int) -> str:
        """Return what the host's part of a gap is put down to."""
        if not self.known:
            return "idle_unknown_ns"
        for name, when in (
            ("idle_unknown_ns", self.recorder),
            ("idle_input_ns", self.input),
            ("idle_allocator_ns", self.allocator),
            ("idle_sync_ns", self.waiting),
        ):
            if t in when:
                return name
        away = self.is_long_pause(t) or t in self.builds or self.is_away(t)
        return "idle_host_ns" if away else "idle_launch_ns"


def runs(times: list[int]) -> list[list[int]]:
    """Return sorted times by runs that follow each other."""
    found: list[list[int]] = []
    for t in times:
        if found and found[-1][-1] == t - 1:
            found[-1].append(t)
        else:
            found.append([t])
    return found


def is_copy(row: Row) -> bool:
    """Return whether a row is a copy that a call asked for."""
    return row["activity"] == "memcpy" and row["correlation"] is not None


def moments(rows: Any) -> set[int]:
    """Return all nanoseconds that rows cover."""
    return {t for r in rows for t in range(r["start_ns"], r["end_ns"])}
