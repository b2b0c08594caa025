"""What a finding costs the devices that run one program: the mean of all of them, never the worst one's alone.

Ranks of one job, and devices of one rank, do the same and are described together. A rule has a finding on every device
where the cost is above its limit; on the others the cost is the time of the same parts, below it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from deepprof.diagnosis.engine import declared_rules
from deepprof.diagnosis.finding import Finding
from deepprof.metrics.breakdown.costs import mean_parts
from deepprof.metrics.loop import Loop
from deepprof.metrics.ranks.comparison import RankComparison
from deepprof.metrics.ranks.facts import longest_loops

Place = tuple[int, int, int | None]  # rank, device, and main stream where there is one


class MeasuredDevice(Struct, frozen=True, eq=False):
    """A device, and the mean time of its iteration, marked step or recording and of every part of that, in ns.

    `parts` are empty where they are unknown. `median_ns` is the median iteration, 0 where nothing repeats.
    """

    place: Place
    whole_ns: float
    parts: Mapping[str, float]
    median_ns: float = 0.0

    def has(self, finding: Finding) -> bool:
        """Return whether a finding is about what was measured of this device."""
        stated = finding.evidence.get("iteration_ns")
        same = not isinstance(stated, int | float) or not self.whole_ns or abs(stated - self.whole_ns) <= 1
        return same and finding.stream is not None and (finding.rank, finding.device, finding.stream) == self.place


Devices = Sequence[MeasuredDevice]


def read_device(loop: Loop) -> MeasuredDevice:
    """Return what was measured of the device of a loop, or of a marked step."""
    times = loop.usual["iteration_ns"]
    mean_ns, median_ns = (float(time or 0) for time in (times.mean(), times.median()))  # type: ignore[arg-type]
    return MeasuredDevice((loop.rank, loop.device, loop.stream), mean_ns, mean_parts(loop), median_ns)


def find_mean_time(devices: Devices) -> float:
    """Return the mean time of an iteration, marked step or recording of several devices, in ns."""
    return sum(each.whole_ns for each in devices) / max(1, len(devices))


def group_loops(comparison: RankComparison | None, measured: Iterable[Loop]) -> list[list[Loop]]:
    """Return the loops, or marked steps, of the devices that run the same program, by program; none of one alone."""
    groups = [] if comparison is None else [group.places for group in comparison.groups if len(group.places) > 1]
    longest = longest_loops(measured) if groups else {}
    return [[longest[place] for place in places if place in longest] for places in groups]


def average_costs(
    findings: Sequence[Finding], groups: Iterable[Devices], cost: Callable[[Finding], float]
) -> dict[int, float]:
    """Return the cost of every finding by its `id`: its own, or the mean of the group of devices that it is about."""
    costs = {id(finding): cost(finding) for finding in findings}
    for devices in groups:
        for found in _sort_by_rule(findings, devices):
            known = {place: costs[id(finding)] for place, finding in found.items()}
            rest = (_spend_unnamed(each, found) for each in devices if each.place not in known)
            mean = (sum(known.values()) + sum(rest)) / len(devices)
            costs.update((id(finding), mean) for finding in found.values())
    return costs


def _sort_by_rule(findings: Iterable[Finding], devices: Devices) -> Iterable[dict[Place, Finding]]:
    """Return the findings on some devices, by rule, the first of every device."""
    known, found = {each.place: each for each in devices}, dict[str, dict[Place, Finding]]()
    for finding in findings:
        place = (finding.rank or 0, finding.device or 0, finding.stream)
        if place in known and known[place].has(finding):
            found.setdefault(finding.rule, {}).setdefault(place, finding)
    return found.values()


def _spend_unnamed(device: MeasuredDevice, found: Mapping[Place, Finding]) -> float:
    """Return what a device spends on the parts that `found`, findings of one rule on other devices, are about."""
    finding = next(iter(found.values()))
    declared = next((rule.parts for rule in declared_rules() if rule.name == finding.rule), ())
    parts = [part for part in declared if part in finding.parts or len(declared) == 1]
    return sum(device.parts.get(part, 0.0) for part in parts)
