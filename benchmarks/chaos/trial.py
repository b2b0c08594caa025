"""One scenario from its quiet beginning to the count of what is in the store."""

from __future__ import annotations

import random
import tempfile
import time
import zlib
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.chaos.counting import Count, check, count_records
from benchmarks.chaos.daemon import Daemon, serving
from benchmarks.chaos.fleet import Size, sailing
from benchmarks.chaos.ground import Ground, Stretch
from benchmarks.chaos.plan import Plan
from benchmarks.chaos.proxy import Proxy, passing
from benchmarks.chaos.records import write_messages
from deepprof.live.client.sender import SendPolicy

__all__ = ["Effort", "Outcome", "Scenario", "attempt"]

STEADY = ("journal.total_nbytes=8GiB", "journal.segment_nbytes=1MiB", "limits.message_nbytes=512KiB")  # keep all
QUIET = 0.4  # of a scenario's time
FEWEST_BATCHES = 1000  # of a sender: this many that it has some left, however slow the machine is
MIN_P99_WAITS = 100  # waits of which a 99th percentile is told: of fewer it is the longest one, which states nothing


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is done to a daemon: `disturb` does it, and states in words what it was. `policy` is the senders'.

    `quiet` is the part of the time before that in which nothing is done, 0 where `disturb` has quiet its own turns;
    `weight` states how much more of the time it gets than others. With `proxied` half of the senders come through a
    proxy, the others over the socket; else over port and socket.
    """

    name: str
    disturb: Callable[[Ground], str]
    size: Size = field(default_factory=Size)
    settings: tuple[str, ...] = ()
    policy: dict[str, float] = field(default_factory=dict)
    proxied: bool = False
    quiet: float = QUIET
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Effort:
    """How long a scenario takes, its dice, and how long what must come is waited for."""

    seconds: float
    seed: int
    deadline_s: float = 120.0
    patient: bool = False  # senders never give up for lack of time: where the machine may be as busy as it likes

    def policy(self, scenario: Scenario) -> SendPolicy:
        """Return how the senders behave: as those of `deepprof send`, with a window that keeps them waiting."""
        most = {"silence_s": self.deadline_s, "patience_s": self.deadline_s, "reach_s": self.deadline_s}
        given = {**(most if self.patient else {}), **scenario.policy}
        return SendPolicy(window_nbytes=scenario.size.window_nbytes, **given)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a scenario; waits are in s: 99th percentiles, None where too few were measured, and the longest.

    `problems` are what must not be, next to what is counted.
    """

    name: str
    done: str
    size: Size
    sent: int
    acknowledged: int
    count: Count
    gone: int
    quiet_s: float | None
    troubled_s: float | None
    longest_s: float | None
    endings: list[str]
    notes: list[str]
    problems: list[str]

    @property
    def is_bad(self) -> bool:
        """Whether anything was lost, doubled or gone, or is otherwise as it must not be."""
        return bool(self.count.lost or self.count.doubled or self.gone or self.problems)

    @property
    def ratio(self) -> float | None:
        """How many times as long honest ones waited as when it was quiet."""
        return self.troubled_s / self.quiet_s if self.troubled_s is not None and self.quiet_s else None


def attempt(scenario: Scenario, effort: Effort) -> Outcome:
    """Play a scenario in its own folder, of which nothing is left."""
    chance = random.Random(zlib.crc32(scenario.name.encode()) ^ effort.seed)
    with tempfile.TemporaryDirectory(prefix="dp-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        batches = FEWEST_BATCHES + round(3 * effort.seconds * scenario.size.pace)
        write_messages(folder / "messages", batches, scenario.size.records, effort.seed)
        plan = Plan(folder)
        try:
            with (
                serving(folder, plan, (*STEADY, *scenario.settings), effort.deadline_s) as daemon,
                passing(daemon.tcp) if scenario.proxied else nullcontext() as proxy,
                sailing(scenario.size, folder, ways(daemon, proxy), effort.policy(scenario)) as fleet,
            ):
                return play(scenario, effort, Ground(daemon, fleet, plan, chance, 0.0, effort.deadline_s, proxy))
        finally:
            plan.close()


def ways(daemon: Daemon, proxy: Proxy | None) -> list[str]:
    """Return the addresses at which senders come in."""
    return [daemon.socket, daemon.tcp if proxy is None else proxy.address]


def play(scenario: Scenario, effort: Effort, ground: Ground) -> Outcome:
    """Let it be quiet, then disturb, then have everybody end, and count."""
    fleet = ground.fleet
    be_quiet(ground, scenario, effort.seconds * scenario.quiet)
    began = time.monotonic()
    ground.until_s = began + effort.seconds * (1 - scenario.quiet)
    done = scenario.disturb(ground)
    ground.troubled = ground.troubled or [(began, time.monotonic())]
    ground.mend()
    fleet.finish(effort.deadline_s)
    fleet.kill()
    return report(scenario, ground, done, judge(ground))


def be_quiet(ground: Ground, scenario: Scenario, seconds: float) -> None:
    """Have everybody send undisturbed, for so long once all do."""
    fleet = ground.fleet
    fleet.board.pace = scenario.size.pace
    fleet.start()
    ground.wait_for(lambda: all(durable for _, _, durable in fleet.each()), "an acknowledgement of each sender")
    with ground.noting(ground.quiet):
        time.sleep(seconds)  # measured, not waited for
    ground.await_given()


@dataclass
class Verdict:
    """What is found in a store: what fsck states last, the records, and what must not be."""

    said: str
    count: Count
    problems: list[str]


def judge(ground: Ground) -> Verdict:
    """End the daemon one way or the other, check its store, and count what is in it after a restart."""
    daemon, problems = ground.daemon, list[str]()
    code = 0 if (killed := ground.chance.random() < 0.5) else daemon.stop()
    if killed:
        daemon.kill()
    said, harmless = check(daemon.store)
    daemon.start()
    count = count_records(daemon, ground.fleet)
    if last := daemon.stop():
        problems.append(f"the last SIGTERM: exit {last}")
    if code or not harmless:
        problems.append(f"exit {code}" if code else "fsck found acknowledged records missing")
    if count.wrong:
        problems.append(f"{count.wrong} records miscounted by the daemon")
    if ground.plan.faults and not ground.plan.hits():
        problems.append("no call met the fault: nothing was tried")
    return Verdict(said, count, problems)


def report(scenario: Scenario, ground: Ground, done: str, verdict: Verdict) -> Outcome:
    """Put together what came of a scenario."""
    fleet, diaries = ground.fleet, list(ground.fleet.diaries())
    waits = [(sent, wait) for diary in diaries for sent, wait in diary["waits"]]
    gone = [text for diary in diaries for text in diary["gone"]]
    notes = [*tell_faults(ground), *ground.notes, *verdict.problems]
    notes += [*([] if verdict.said == "sound" else [f"fsck: {verdict.said}"]), *gone[:2]]
    return Outcome(
        name=scenario.name,
        done=done,
        size=scenario.size,
        sent=fleet.given(),
        acknowledged=fleet.acknowledged(),
        count=verdict.count,
        gone=fleet.gone(),
        quiet_s=find_p99(waits, ground.quiet),
        troubled_s=find_p99(waits, ground.troubled),
        longest_s=max(those_in(waits, ground.troubled), default=None),
        endings=ground.without_paths(ground.daemon.endings),
        notes=ground.without_paths(notes),
        problems=verdict.problems,
    )


def tell_faults(ground: Ground) -> list[str]:
    """Say how many calls met a fault, and how many faults were met by none: those were not tried."""
    plan = ground.plan
    if not plan.faults:
        return []
    missed = f", none in {plan.missed} of {plan.faults} times" if plan.missed else ""
    return [f"{plan.hits():,} calls met it{missed}"]


def those_in(waits: list[tuple[float, float]], stretches: list[Stretch]) -> list[float]:
    """Return the waits of what was sent in some sections of time."""
    return [wait for sent, wait in waits if any(began <= sent < ended for began, ended in stretches)]


def find_p99(waits: list[tuple[float, float]], stretches: list[Stretch]) -> float | None:
    """Return the 99th percentile of the waits of what was sent in some sections of time."""
    found = those_in(waits, stretches)
    return float(np.quantile(found, 0.99)) if len(found) >= MIN_P99_WAITS else None
