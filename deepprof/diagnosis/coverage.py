"""Which large parts of a loop's time no finding names, and why not: no large cost in the table stays unexplained."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache

from msgspec import Struct

from deepprof.diagnosis.engine import declared_rules
from deepprof.diagnosis.finding import Finding
from deepprof.metrics.breakdown.costs import cost_of, mean_of, mean_parts
from deepprof.metrics.breakdown.parts import COPY_PARTS
from deepprof.metrics.loop import Loop

ONCE = "nearly all of it is in one iteration, which may be chance; record more iterations"
WHY = {
    "idle_unknown_ns": "record the runtime calls that launch the kernels, which show it",
    "idle_startup_ns": "the device needs this time to start its few kernels; run several jobs or streams",
    "idle_launch_ns": "Python needs this time between operators; fewer and larger operators need less",
    "idle_sync_ns": "the host hardly waits; it needs this time to launch again",
}
QUEUED = "either launched work started late, or its launch was not recorded"
TOO_FEW_ITERATIONS = "too few iterations have it"
OTHER_DIRECTION = "copies in another direction cost more, which a finding names"
FROM_AND_TO_HOST = frozenset(COPY_PARTS[way] for way in ("HtoD", "DtoH", None))
ON_DEVICES = frozenset({COPY_PARTS["DtoD"], COPY_PARTS["PtoP"], "exposed_memset_ns"})


class UnnamedPart(Struct, frozen=True):
    """A part of one loop's iteration time that is above its limit, and `why` no finding names it."""

    rank: int
    device: int
    stream: int
    part: str
    share: float
    why: str


def find_unnamed(loops: Sequence[Loop], findings: Sequence[Finding]) -> Iterator[UnnamedPart]:
    """Yield the large parts of the loops' time that no finding claims, by loop, the largest first."""
    for loop in loops:
        named = {part for finding in findings if is_about(finding, loop) for part in finding.parts}
        for part, share in _large_parts(loop):
            if part not in named:
                yield UnnamedPart(loop.rank, loop.device, loop.stream, part, share, _explain(loop, part, named))


def is_about(finding: Finding, loop: Loop) -> bool:
    """Return whether a finding is about a loop, or about the whole job."""
    return finding.stream is None or finding.is_on(loop)


@cache
def part_limits() -> Mapping[str, float]:
    """Return for every part the share of the iteration time from which on it is worth a finding: its rule's limit."""
    known = ((part, each.limits.warning) for each in declared_rules() if each.limits for part in each.parts)
    return dict(sorted(known, key=lambda limit: -limit[1]))  # of two rules on a part the lower limit holds


def _large_parts(loop: Loop) -> list[tuple[str, float]]:
    """Return the parts above their limits with their shares of the mean iteration, the largest first."""
    means = mean_parts(loop)
    whole = max(1.0, sum(means.values()))
    limits = part_limits()
    large = [(part, means[part] / whole) for part in limits if means.get(part, 0.0) >= limits[part] * whole]
    return sorted(large, key=lambda each: -each[1])


def _explain(loop: Loop, part: str, named: Collection[str]) -> str:
    """Return why no finding names a part; `named` are the parts that are."""
    cost = cost_of(loop, [part])
    if cost is None:
        return TOO_FEW_ITERATIONS
    if cost.affected < 2 < cost.iterations:
        return ONCE
    if any(part in ways and ways.intersection(named) for ways in (FROM_AND_TO_HOST, ON_DEVICES)):
        return OTHER_DIRECTION
    seen = mean_of(loop, "launches") > 0
    return QUEUED if part == "idle_unknown_ns" and seen else WHY.get(part, TOO_FEW_ITERATIONS)
