"""What a recording is, what uses most of its time, and the largest loss that can be avoided: the report's answer.

Every recording gets one. Shares are of a usual iteration, of a marked step, or of the recorded time, the host's
included; a stall is an iteration far from the usual ones, and its share is that of all iterations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np
import polars as pl
from msgspec import Struct, field

from deepprof.diagnosis.device_means import (
    Devices,
    MeasuredDevice,
    average_costs,
    find_mean_time,
    group_loops,
    read_device,
)
from deepprof.diagnosis.diagnosed_job import DiagnosedJob, WorkWithoutLoop
from deepprof.diagnosis.engine import declared_rules
from deepprof.diagnosis.finding import Finding
from deepprof.metrics.breakdown.earlier_work import EarlierWork
from deepprof.metrics.breakdown.outside import TimeOutside
from deepprof.metrics.breakdown.parts import IDLE_PARTS, PART_NAMES
from deepprof.metrics.breakdown.start import is_start
from deepprof.metrics.loop import Loop

Group = Literal["computing", "communicating", "copying", "waiting"]
Kind = Literal["training loop", "loop", "marked step", "start-up", "benchmark", "recording", "no work"]

TRAINING = ("backward", "optimizer")  # stages, and the category of kernels, that only training has
FIRST_USE = "idle_first_use_ns"
FEW_KERNELS = 2  # names of kernels that a benchmark runs again and again
MOST_CALLS = 0.8  # of all kernels are of these
LEAST_CALLS = 10
LEAST_OF_STALL = 0.3  # of the time of all iterations: then a single stall is what was lost, chance or not
LEAST_OF_START = 0.1  # of the recording: the start of a rank for which the others wait is no chance
LEAST_OF_STAGE = 0.001  # of a loop's work on the device
LEAST_WITHOUT_LOOP = 0.1  # of a recording: a smaller loss is not named as that of a recording without iterations
OF_RECORDING = "capture-incomplete"  # concerns the recording, not the job
STALLS, FIRST = "slow-iterations", "first-use"
ONCE = {STALLS: LEAST_OF_STALL, "late-start": LEAST_OF_START}  # what happens once, and from which share on it may lead


class RecordingAnswer(Struct, frozen=True, kw_only=True, eq=False):
    """The answer to what was recorded and what to do.

    `whole_ns` is the mean usual iteration, the marked step or the recorded time. `parts` are the shares of it, by part
    of the time, and `groups` by what the device does, the largest first. `loss` is the finding on the largest avoidable
    loss, `loss_ns` what it costs and `loss_ratio` its share; None where there is none, or it is unknown. Where
    several `devices` do the same, all of these are means over them. `loop` is the loop that this is about, on one of
    them, `step` the marked step; None without one. `outside` is the time of the loop's device outside the iterations,
    None where unknown. `is_wait_larger` is set where the largest loss, that of stalls, is smaller than one wait
    outside the iterations: then there is no `loss`.
    `rest` is the parts of a start-up's time, in ns, that are not the start itself. `capture` is the finding on a graph
    that is captured for most of a start, in which kernels are not meant to run; None where there is none. `earlier` is
    what a device waits for that most likely was launched before the recording; None where it is nothing, or a loop.
    """

    kind: Kind
    whole_ns: float
    parts: Mapping[str, float]
    groups: Mapping[Group, float]
    loss: Finding | None
    loss_ratio: float | None
    loop: Loop | None
    loss_ns: float | None = None
    step: Loop | None = None
    devices: Devices = ()
    outside: TimeOutside | None = None
    is_wait_larger: bool = False
    rest: Mapping[str, float] = field(default_factory=dict)
    capture: Finding | None = None
    earlier: EarlierWork | None = None

    @property
    def confidence(self) -> float | None:
        """The confidence in the loss, or else in the iterations; None where the figures are all that is stated."""
        if self.loss is not None:
            return self.loss.confidence
        return None if self.loop is None else self.loop.confidence


def find_answer(job: DiagnosedJob) -> RecordingAnswer:
    """Return the answer on a job."""
    loop = choose_loop(job)
    loop = loop if loop is not None and loop.is_main else None
    kind, devices = _measure_without_loop(job) if loop is None else _measure_loop(job, loop)
    means = _average([each.parts for each in devices])
    whole_ns = find_mean_time(devices) or (job.summary.span_ns if loop is None else 0.0)
    loss, outside = _find_loss(job, devices, is_loop=loop is not None), None if loop is None else loop.outside
    is_wait_larger = loss is not None and loss.rule == STALLS and _is_shorter(loss, outside)
    loss = None if is_wait_larger else loss
    return RecordingAnswer(
        kind=kind,
        whole_ns=whole_ns,
        parts=(shares := share_parts(means)),
        groups=group_shares(shares),
        loss=loss,
        loss_ns=None if loss is None else _find_cost(loss, job, devices),
        loss_ratio=None if loss is None else _find_share(loss, job, devices),
        loop=loop,
        step=_find_step(job) if kind == "marked step" else None,
        devices=devices,
        outside=outside,
        is_wait_larger=is_wait_larger,
        rest=_measure_rest(job) if kind == "start-up" else {},
        capture=next((each for each in job.findings if _is_capture(each)), None),
        earlier=next((each.earlier for each in job.stretches if each.earlier), None) if loop is None else None,
    )


def _measure_rest(job: DiagnosedJob) -> dict[str, float]:
    """Return the parts of the time, in ns, that are not the program's start: their mean of the devices."""
    rests = [{part: ns - each.start.get(part, 0) for part, ns in each.parts.items()} for each in job.stretches]
    return _average(rests)


def _is_shorter(stalls: Finding, outside: TimeOutside | None) -> bool:
    """Return whether the device waits longer at once outside the iterations than all stalls among them take.

    Stalls are what happens now and then, as that wait does: both are compared in the time of the recording.
    """
    return outside is not None and _share_of(stalls) * outside.inside_ns < outside.longest_wait_ns


def _measure_loop(job: DiagnosedJob, loop: Loop) -> tuple[Kind, Devices]:
    """Return what kind of loop it is, and the devices that do the same as its own, with the mean time of every part."""
    return _name_loop(loop), [read_device(each) for each in _find_alike(job, loop)]


def _find_alike(job: DiagnosedJob, loop: Loop) -> list[Loop]:
    """Return the loops of the devices that do the same as that of a loop, itself alone where there is none."""
    groups = group_loops(job.ranks, job.loops)
    return next((alike for alike in groups if any(each is loop for each in alike)), [loop])


def _find_loss(job: DiagnosedJob, devices: Devices, *, is_loop: bool) -> Finding | None:
    """Return the finding on the largest avoidable loss: the headline, or a remark that states more.

    A single stall, which may be chance, is a remark, as is a rank's late start: they are compared with the headline by
    their shares of the whole time, of which they leave the rest to usual iterations. Remarks are, too, the losses of a
    recording without iterations: it is unknown whether the job always has them, only that this recording did. A first
    use always is one.
    """
    headline = job.headline
    if headline is not None and headline.headroom_ns_per_iteration == 0:  # all of its time is another one's
        headline = None
    remarks = [each for each in job.findings if each.severity == "info" and _is_loss(each)]
    if is_loop:
        share = 0.0 if headline is None else _find_share(headline, job, devices) or 0.0
        once = [each for each in remarks if each.rule in ONCE and _share_of(each) > ONCE[each.rule]]
        largest = max(once, key=_share_of, default=None)
        return headline if largest is None or _share_of(largest) <= share * (1 - _share_of(largest)) else largest
    if job.loops:  # which take so little of the time that the answer is not about them
        headline, remarks = None, [each for each in remarks if each.iterations is None]
    least = LEAST_WITHOUT_LOOP if headline is None else _share_of(headline)
    larger = (each for each in remarks if _share_of(each) >= least and (headline is None or each.rule == FIRST))
    return next(larger, headline)


def _is_capture(finding: Finding) -> bool:
    """Return whether a finding is about time in which a graph is captured."""
    return finding.rule == FIRST and finding.evidence.get("first_use") == "capture"


def _is_loss(finding: Finding) -> bool:
    """Return whether a finding is about lost time of the job: not about where most work is, no capture, no symptom."""
    if _is_capture(finding):
        return False
    about = {rule.name: rule.subject for rule in declared_rules()}.get(finding.rule)
    return finding.caused_by is None and finding.rule != OF_RECORDING and about not in {"contexts", "memory"}


def _share_of(finding: Finding) -> float:
    """Return the share that a finding states itself: what can be saved, or else the whole cost."""
    evidence = finding.evidence
    return float(evidence.get("saved_ratio") or evidence.get("share_ratio") or 0.0)


def _find_cost(loss: Finding, job: DiagnosedJob, devices: Devices) -> float | None:
    """Return what a loss costs each iteration, a mean over the devices that do the same; None where it is unknown."""
    if loss.headroom_ns_per_iteration is None:
        return None
    return average_costs(job.findings, [devices], _cost_of)[id(loss)]


def _cost_of(finding: Finding) -> float:
    """Return the time that could be saved, or else what the finding's part costs."""
    stated = finding.evidence.get("iteration_ns")
    known = finding.headroom_ns_per_iteration
    return _share_of(finding) * float(stated or 0) if known is None else float(known)


def _find_share(finding: Finding, job: DiagnosedJob, devices: Devices) -> float | None:
    """Return the share of a loss in an iteration, or in what it is a loss of; None where it is unknown.

    Where several devices do the same it is that of their mean loss in their mean time.
    """
    headroom_ns, whole_ns = finding.headroom_ns_per_iteration, find_mean_time(devices)
    if len(devices) > 1 and finding.rule not in ONCE and whole_ns:
        mean_ns = average_costs(job.findings, [devices], _cost_of)[id(finding)]
        if headroom_ns is not None or any(each.has(finding) for each in devices):
            return min(1.0, mean_ns / whole_ns)
    if finding.rule == STALLS or headroom_ns is None:
        return _share_of(finding) or None
    mean = find_time(finding, job)
    return min(1.0, headroom_ns / mean) if mean else _share_of(finding) or None


def share_parts(parts: Mapping[str, float]) -> dict[str, float]:
    """Return the parts as shares of their sum, the largest first."""
    whole = sum(parts.values())
    known = {part: ns / whole for part, ns in parts.items() if ns > 0 and whole > 0}
    return dict(sorted(known.items(), key=lambda each: -each[1]))


def find_group(part: str) -> Group:
    """Return what the device does in a part of the time; memory is set as by a kernel that fills it."""
    if part in {"compute_ns", "exposed_memset_ns"}:
        return "computing"
    if part == "exposed_communication_ns":
        return "communicating"
    return "waiting" if part in IDLE_PARTS else "copying"


def group_shares(shares: Mapping[str, float]) -> dict[Group, float]:
    """Return the shares by group, the largest first."""
    sums = dict[Group, float]()
    for part, share in shares.items():
        sums[find_group(part)] = sums.get(find_group(part), 0.0) + share
    return dict(sorted(sums.items(), key=lambda each: -each[1]))


def _name_loop(loop: Loop) -> Kind:
    """Return whether iterations compute gradients or update a model."""
    kinds = set() if loop.work is None else set(loop.work.table["category"].cast(pl.String))
    stages = set() if loop.anatomy is None else _list_stages(loop.anatomy.stages)
    return "training loop" if (kinds | stages) & set(TRAINING) else "loop"


def _list_stages(stages: pl.DataFrame) -> set[str]:
    """Return the names of the stages that take some of the device's time: a copy alone makes no optimizer."""
    long = stages.filter(pl.col("device_ns") >= LEAST_OF_STAGE * pl.col("device_ns").sum())
    return set(long["stage"].cast(pl.String))


def _measure_without_loop(job: DiagnosedJob) -> tuple[Kind, Devices]:
    """Return what was recorded where no iteration repeats, and the devices with the mean time of every part."""
    if steps := _list_steps(job):
        return "marked step", list(map(read_device, steps))
    measured = {
        (each.rank, each.device): MeasuredDevice(
            (each.rank, each.device, each.stream), sum(each.parts.values()), each.parts
        )
        for each in job.stretches
        if each.parts
    }
    spans = (row for row in job.breakdown.rows(named=True) if (row["rank"], row["device"]) not in measured)
    unmeasured = ((row["rank"], row["device"], {name: row[name] for name in PART_NAMES}) for row in spans)
    devices = [
        *measured.values(),
        *(MeasuredDevice((rank, device, None), sum(parts.values()), parts) for rank, device, parts in unmeasured),
    ]
    means = _average([each.parts for each in devices])
    if not sum(means.values()):
        return "recording" if job.summary.span_ns else "no work", []
    if _is_start(job, means, len(devices)):
        return "start-up", devices
    few = bool(job.stretches) and all(_repeats_few(each) for each in job.stretches)
    return "benchmark" if few else "recording", devices


def _list_steps(job: DiagnosedJob) -> list[Loop]:
    """Return the marked steps, one of every device without a loop."""
    return [each for each in job.steps if each.single == "marked step"]


def _find_step(job: DiagnosedJob) -> Loop | None:
    """Return the marked step that the headline is about, or else the longest; None without one."""
    return _choose(job, _list_steps(job))


def _average(times: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean time of every part, over several devices."""
    return {name: sum(each.get(name, 0.0) for each in times) / max(1, len(times)) for name in PART_NAMES}


def _is_start(job: DiagnosedJob, means: Mapping[str, float], devices: int) -> bool:
    """Return whether much of the time is a program's start: a wait before the first work alone is none."""
    starting = sum(sum(each.start.values()) for each in job.stretches) / devices
    return is_start(starting, means[FIRST_USE], sum(means.values()))


def _repeats_few(stretch: WorkWithoutLoop) -> bool:
    """Return whether nearly all kernels are calls of one or two."""
    calls = np.sort(stretch.top.kernels["calls"].to_numpy())[::-1]
    return bool(calls.sum() >= LEAST_CALLS and calls[:FEW_KERNELS].sum() >= MOST_CALLS * calls.sum())


def choose_loop(job: DiagnosedJob) -> Loop | None:
    """Return the loop that the headline is about, or else the one that uses most of the time."""
    return _choose(job, job.loops)


def _choose(job: DiagnosedJob, loops: Sequence[Loop]) -> Loop | None:
    """Return that of the loops, or steps, that the headline is about, or else the one that uses most of the time."""
    headline = job.headline
    about = _find_meant(headline, loops) if headline is not None and headline.stream is not None else []
    return max(about or loops, key=_time_of, default=None)


def _find_meant(finding: Finding, loops: Iterable[Loop]) -> list[Loop]:
    """Return the loops that a finding may be about: of several on one stream, those with its mean iteration time."""
    wanted, spoken = (finding.rank, finding.device, finding.stream), finding.evidence.get("iteration_ns")
    there = [loop for loop in loops if matches(wanted, (loop.rank, loop.device, loop.stream))]
    exact = [loop for loop in there if round(find_mean(loop) or 0) == spoken]
    return exact if len(there) > 1 and exact else there


def matches(wanted: Iterable[int | None], place: Iterable[int]) -> bool:
    """Return whether `place` is as wanted, where None is any."""
    return all(want in {None, have} for want, have in zip(wanted, place, strict=True))


def _time_of(loop: Loop) -> int:
    """Return how long the loop's iterations need together."""
    return int(loop.iterations["operation_ns"].sum())


def find_mean(loop: Loop) -> float | None:
    """Return the mean time of the iterations that the table of parts is about, in ns; None where none is complete."""
    usual = loop.usual["iteration_ns"]
    return float(usual.mean()) if len(usual) else None  # type: ignore[arg-type]


def find_time(finding: Finding, job: DiagnosedJob) -> float | None:
    """Return the mean time of the loop, or the time of the step, that a finding is about; None where several fit."""
    meant = _find_meant(finding, job.loops or job.steps)
    return find_mean(meant[0]) if len(meant) == 1 else None
