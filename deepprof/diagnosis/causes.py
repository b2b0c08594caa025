"""Root causes: which finding explains which, and in which order they are reported."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from heapq import heappop, heappush

from msgspec.structs import replace

from deepprof.diagnosis import SEVERITIES
from deepprof.diagnosis.device_means import Devices, average_costs
from deepprof.diagnosis.engine import declared_rules
from deepprof.diagnosis.finding import Finding

OVER_TIME = frozenset({"slow-iterations", "drift"})  # they may concern any part
SAME_KIND = 0.5  # least share of the symptom's time in the parts of its cause
MIN_EXPLAINED = 0.8  # of the symptom's weight: a smaller cause does not explain it
MOST_WAITED = 0.5  # of the time in a step's collectives: waiting for one rank, it is that rank's and no communication
SURE_ENOUGH = 0.5  # of the surest warning's confidence: one that is less sure leads none that is
NEAR = 0.8  # of a loss: one that is as large is not plainly smaller, as bounds and means are no more exact


def rank(findings: Iterable[Finding], groups: Iterable[Devices] = ()) -> tuple[Finding, ...]:
    """Return the findings: root causes, the largest loss first, each before what it explains; then repetitions.

    The size of a loss is the mean over those devices of `groups` that run the same program. Of losses of nearly one
    size the surer comes first; those that are much less sure than others follow these.
    A finding that several main streams share is reported for the worst of them; the others follow at the end,
    `caused_by` the same rule.
    """
    ordered = _order(tuple(findings), groups)
    causes = _find_causes(ordered)
    roots = [_find_root(number, causes) for number in range(len(ordered))]
    judged = [
        replace(f, caused_by=None if root == i else ordered[root].rule)
        for i, (f, root) in enumerate(zip(ordered, roots, strict=True))
    ]
    first: dict[tuple[str, str | None], Finding] = {}
    for finding in judged:
        first.setdefault((finding.rule, finding.caused_by), finding)
    repeated = [f for f in judged if first[f.rule, f.caused_by] is not f]
    told = [
        each
        for cause in first.values()
        if cause.caused_by is None
        for each in (cause, *(f for f in first.values() if f.caused_by == cause.rule))
    ]
    return (*told, *(replace(finding, caused_by=finding.caused_by or finding.rule) for finding in repeated))


def _find_causes(ordered: Sequence[Finding]) -> list[int | None]:
    """Return for every finding the number of the first one that explains it, None where none does.

    Only findings on its rank or on the whole job can explain it.
    """
    ranks: dict[int | None, list[int]] = {}
    for number, finding in enumerate(ordered):
        ranks.setdefault(finding.rank, []).append(number)
    whole = {number for number, finding in enumerate(ordered) if finding.stream is None}
    near = {rank: sorted(whole.union(numbers)) for rank, numbers in ranks.items()}
    return [next((n for n in near[each.rank] if _explains(ordered[n], each)), None) for each in ordered]


def _find_root(number: int, causes: Sequence[int | None]) -> int:
    """Return the number of the root cause of a finding, its own where nothing explains it."""
    while (cause := causes[number]) is not None:
        number = cause
    return number


def _explains(cause: Finding, symptom: Finding) -> bool:
    """Return whether `cause` is a likely cause of `symptom`: a recognized one, in the same place, and large enough."""
    known = symptom.rule in explained_by(cause.rule) and _same_place(cause, symptom)
    late = cause.rule == "straggler" and symptom.rule in reasons_of_delay() and symptom.rank == cause.rank
    return (known or late) and _is_of_one_kind(cause, symptom) and _is_enough(cause, symptom)


@cache
def explained_by(name: str) -> frozenset[str]:
    """Return the rules of the symptoms of a rule; no two rules explain each other, directly or by others."""
    return next((each.explains for each in declared_rules() if each.name == name), frozenset())


@cache
def reasons_of_delay() -> frozenset[str]:
    """Return the rules that state why a rank is late where only it has the finding; otherwise it is the whole job's."""
    return frozenset(each.name for each in declared_rules() if each.delays_rank)


def _is_of_one_kind(cause: Finding, symptom: Finding) -> bool:
    """Return whether the time that grows or differs in some iterations is the time that the cause is about."""
    if symptom.rule not in OVER_TIME or not cause.parts or not symptom.parts or cause.rule == "shared-device":
        return True
    shared = sum(ns for part, ns in symptom.parts.items() if part in cause.parts)
    return shared >= SAME_KIND * sum(symptom.parts.values())


def _is_enough(cause: Finding, symptom: Finding) -> bool:
    """Return whether `cause` weighs enough to explain `symptom`.

    Another process slows only the iterations in which it works: their loss is compared, not the mean of all.
    """
    touched = cause.evidence.get("lost_together_ns") if cause.rule == "shared-device" else None
    if isinstance(touched, int):
        return touched >= MIN_EXPLAINED * (symptom.headroom_ns_per_iteration or 0)
    return burden(cause) >= MIN_EXPLAINED * burden(symptom) or _is_usually_enough(cause, symptom)


def _is_usually_enough(cause: Finding, symptom: Finding) -> bool:
    """Return whether a late rank causes most of the others' waiting in a usual iteration.

    A few long collectives raise the mean waiting time, but not the usual lateness of the rank. Of a single step it is
    available how much of the time in collectives is waiting for it, though others may come hardly earlier."""
    late, exposed = cause.evidence.get("late_ratio"), symptom.evidence.get("share_ratio")
    waited = cause.evidence.get("waited_ratio")
    if symptom.rule == "communication-bound" and isinstance(waited, float) and waited >= MOST_WAITED:
        return True
    if symptom.rule != "communication-bound" or not isinstance(late, float) or not isinstance(exposed, float):
        return False
    return late * cause.confidence >= MIN_EXPLAINED * exposed * symptom.confidence


def _same_place(cause: Finding, symptom: Finding) -> bool:
    """Return whether both are about one main stream; a finding on the whole job is about all of them.

    What makes a rank late is on that rank.
    """
    if symptom.rule == "straggler" and (cause.rank, cause.device) != (symptom.rank, symptom.device):
        return False
    return cause.stream is None or _place_of(cause) == _place_of(symptom)


def _place_of(finding: Finding) -> tuple[int | None, int | None, int | None]:
    return finding.rank, finding.device, finding.stream


def burden(finding: Finding) -> float:
    """Return the time that a finding is about, weighted with its confidence."""
    return _lost_ns(finding) * finding.confidence


def _lost_ns(finding: Finding) -> float:
    """Return the time that a finding is about; for a growing cost the latest value, which every later iteration has."""
    lasting = finding.evidence.get("lasting_ns_per_iteration")
    return max(finding.headroom_ns_per_iteration or 0, lasting if isinstance(lasting, int) else 0)


def _known_ns(finding: Finding) -> float:
    """Return the same, or what the finding's part costs: a recording has no headroom per iteration."""
    cost = finding.evidence.get("cost_ns_per_iteration")
    return _lost_ns(finding) or (float(cost) if isinstance(cost, int | float) else 0.0)


def _order(findings: Sequence[Finding], groups: Iterable[Devices]) -> list[Finding]:
    """Return warnings before remarks, those that are sure enough to lead before others, each kind by its losses."""
    warnings = [each for each in findings if each.severity != "info"]
    least = SURE_ENOUGH * max((each.confidence for each in warnings), default=0.0)
    sure, unsure = ([each for each in warnings if (each.confidence >= least) is leads] for leads in (True, False))
    remarks = [each for each in findings if each.severity == "info"]
    sizes = _size_losses(findings, groups)
    return [each for kind in (sure, unsure, remarks) for each in _sort_losses(kind, sizes)]


def _size_losses(findings: Sequence[Finding], groups: Iterable[Devices]) -> dict[int, float]:
    """Return the loss of every finding by its `id`: of those of one rule the worst has the mean over its devices."""
    means, worst = average_costs(findings, groups, _known_ns), dict[tuple[str, float], float]()
    for each in findings:
        key = each.rule, means[id(each)]
        worst[key] = max(worst.get(key, 0.0), _known_ns(each))
    return {
        id(each): mean * _known_ns(each) / (worst[each.rule, mean] or 1.0)
        for each in findings
        for mean in [means[id(each)]]
    }


def _sort_losses(findings: Sequence[Finding], sizes: Mapping[int, float]) -> Iterator[Finding]:
    """Yield findings, the largest loss first, but before it what is nearly as large and weighs more.

    `sizes` are the losses by the `id` of the finding.
    """
    by_size = sorted(findings, key=lambda each: sizes[id(each)], reverse=True)
    near = list[tuple[tuple[float, int, bool], int]]()
    added, told = 0, set[int]()
    for number, largest in enumerate(by_size):
        while number not in told:
            while added < len(by_size) and sizes[id(by_size[added])] >= NEAR * sizes[id(largest)]:
                heappush(near, (_weight(by_size[added], sizes[id(by_size[added])]), added))
                added += 1
            _, first = heappop(near)
            told.add(first)
            yield by_size[first]


def _weight(finding: Finding, size_ns: float) -> tuple[float, int, bool]:
    """Return the key by which findings of nearly one size are sorted: the surer and the more severe come first.

    Of two that weigh the same the one about the job comes before the one about its recording.
    """
    return (
        -math.log1p(size_ns * finding.confidence),
        -SEVERITIES.index(finding.severity),
        finding.rule == "capture-incomplete",
    )
