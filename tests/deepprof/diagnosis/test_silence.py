"""What every rule on a part of the time has in common: limits, and silence where there is little to go by."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import msgspec
import pytest

from deepprof.collectors.trace import Trace, empty_table
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.rules.allocator_bound import allocator_bound
from deepprof.diagnosis.rules.communication_bound import communication_bound
from deepprof.diagnosis.rules.copy_bound import copy_bound
from deepprof.diagnosis.rules.host_bound import host_bound
from deepprof.diagnosis.rules.input_bound import input_bound
from deepprof.diagnosis.rules.launch_bound import launch_bound
from deepprof.diagnosis.rules.small_kernels import small_kernels
from deepprof.diagnosis.rules.sync_bound import sync_bound
from deepprof.metrics.breakdown.parts import PARTS
from deepprof.metrics.loop import Loop
from tests.deepprof.diagnosis.loops import START_US, Did, Job, Work, as_stand_in, compute
from tests.tables import event, make_trace

Rule = Callable[[Loop, Trace], Iterable[Finding]]
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def idle(ms: float) -> Work:
    """Return the kernel of an iteration of 100 ms that leaves `ms` to the host."""
    return compute(100_000 - 1_000 * ms)


def copies(ms: float) -> Job:
    exposed = Work(
        50_000, 50_000 + 1_000 * ms, None, "Memcpy HtoD (Pinned -> Device)", 9, "memcpy", {"copy_kind": "HtoD"}
    )
    return Job(100_000, [compute(50_000, launched=-10_000_000), exposed])


def collectives(ms: float) -> Job:
    return Job(100_000, [compute(50_000), Work(50_000, 50_000 + 1_000 * ms, 49_000, NCCL, 20)])


def loading(ms: float) -> Job:
    return Job(100_000, [idle(50)], [Did("enumerate(DataLoader)#x", 50_000, 50_000 + 1_000 * ms, "range")])


def allocating(ms: float) -> Job:
    return Job(100_000, [idle(50)], [Did("cudaMalloc", 50_000, 50_000 + 1_000 * ms)])


def working(ms: float) -> Job:
    return Job(100_000, [compute(100_000 - START_US - 1_000 * ms)])  # the launch at the end is no other work


def waiting(ms: float) -> Job:
    """Return iterations of 100 quick steps; the device idles for `ms` in all after waits of the host."""
    busy = 1_000 - 10 * ms
    steps = range(0, 100_000, 1_000)
    work = [Work(at, at + busy, at - START_US) for at in steps]
    return Job(100_000, work, [Did("cudaStreamSynchronize", at, at + busy) for at in steps])


def launching(ms: float) -> Job:
    """Return iterations of 100 kernels, each launched late; the device idles for `ms` in all."""
    return Job(100_000, [Work(at, at + 1_000 - 10 * ms, at - START_US) for at in range(0, 100_000, 1_000)])


def small() -> Job:
    """Return iterations of 100 kernels of 5 µs, queued long before, each begun 5 µs after the last."""
    return Job(1_000, [Work(10 * i, 10 * i + 5, i - 900) for i in range(100)])


RULES: dict[str, tuple[Rule, Callable[[float], Job], float, float]] = {
    "input-bound": (input_bound, loading, 8, 30),
    "allocator-bound": (allocator_bound, allocating, 5, 20),
    "communication-bound": (communication_bound, collectives, 15, 40),
    "copy-bound": (copy_bound, copies, 10, 30),
    "host-bound": (host_bound, working, 15, 50),
    "sync-bound": (sync_bound, waiting, 10, 30),
    "launch-bound": (launch_bound, launching, 15, 50),
}
OWN_GAPS_NS = dict.fromkeys(("sync-bound", "launch-bound"), 100 * 1_000)  # of the device, between 100 kernels
EVERY = pytest.mark.parametrize("name", RULES)


@EVERY
def test_a_rule_speaks_from_its_limit_on(name: str) -> None:
    rule, job, warning, critical = RULES[name]
    assert job(warning - 0.1).found(rule) == []
    for ms, severity in ((warning, "warning"), (critical - 0.1, "warning"), (critical, "critical")):
        (found,) = job(ms).found(rule)
        assert (found.rule, found.severity) == (name, severity)
        assert found.evidence["cost_ns_per_iteration"] == pytest.approx(ms * 1e6, abs=1)
        assert found.evidence["share_ratio"] == pytest.approx(ms / 100)
        assert found.evidence["iteration_ns"] == 100_000_000
        assert found.evidence["iterations"] == 6
        assert found.iterations == (0, 5)
        assert found.headroom_ns_per_iteration == pytest.approx(ms * 1e6 - OWN_GAPS_NS.get(name, 0), abs=1)
        assert (found.rank, found.device, found.stream) == (0, 0, 7)


@EVERY
def test_confidence_grows_with_the_share_and_with_the_iterations(name: str) -> None:
    rule, job, warning, _ = RULES[name]

    def confidence(ms: float, iterations: int = 7, loop: float = 1.0) -> float:
        (found,) = replace(job(ms), iterations=iterations, confidence=loop).found(rule)
        return found.confidence

    assert confidence(warning) == pytest.approx(0.6)
    assert confidence(1.5 * warning) == pytest.approx(0.8)
    assert confidence(2 * warning) == pytest.approx(1.0)
    assert confidence(2 * warning, iterations=5) == pytest.approx(0.92)  # the last one is followed by none
    assert confidence(2 * warning, loop=0.5) == pytest.approx(0.5)


@EVERY
def test_without_a_followed_iteration_nothing_is_said(name: str) -> None:
    rule, job, _, critical = RULES[name]
    assert replace(job(critical), iterations=1).found(rule) == []


@EVERY
def test_one_followed_iteration_is_told_with_less_confidence(name: str) -> None:
    rule, job, _, critical = RULES[name]
    found = replace(job(2 * critical if critical <= 40 else critical), iterations=2).found(rule)
    assert all(each.confidence <= 0.68 for each in found)
    assert found or rule is host_bound


@EVERY
def test_a_loop_without_parts_has_no_costs(name: str) -> None:
    rule, job, _, critical = RULES[name]
    loop, trace = job(critical).build()
    assert list(rule(msgspec.structs.replace(loop, parts=empty_table(PARTS), timeline=None), trace)) == []


@EVERY
@pytest.mark.parametrize(
    "job", [Job(1, iterations=0), Job(100, [Work(0, 90)], iterations=1)], ids=["empty", "one event"]
)
def test_a_trace_with_next_to_nothing_in_it_says_nothing(name: str, job: Job) -> None:
    assert job.found(RULES[name][0]) == []


@pytest.mark.parametrize("rule", [launch_bound, small_kernels])
def test_operators_that_stand_for_kernels_are_neither_launched_nor_short(rule: Rule) -> None:
    job = launching(60) if rule is launch_bound else small()
    loop, trace = job.build()
    assert list(rule(loop, trace)) != []
    assert list(rule(loop, as_stand_in(trace))) == []


@pytest.mark.parametrize("name", ["input-bound", "allocator-bound", "communication-bound", "copy-bound"])
def test_a_cost_of_some_iterations_says_of_how_many(name: str) -> None:
    rule, job, _, critical = RULES[name]
    whole = job(min(50, 2 * critical))
    often, seldom = (
        replace(
            whole,
            iterations=13,
            work=[whole.work[0], *(replace(w, every=every) for w in whole.work[1:])],
            host=[replace(d, every=every) for d in whole.host],
        )
        for every in (1, 2)
    )
    assert len(often.found(rule)) == 1
    (found,) = seldom.found(rule)
    assert f"in {found.evidence['affected_iterations']} of {found.evidence['iterations']}, up to" in found.summary


def test_every_rule_is_silent_on_an_iteration_that_computes_all_the_time() -> None:
    job = Job(100_000, [compute(99_990)], [Did("cudaStreamSynchronize", 10, 99_990)])
    assert [found for rule, *_ in RULES.values() for found in job.found(rule)] == []
    assert job.found(small_kernels) == []


def test_made_by_hand_means_by_hand() -> None:
    trace = make_trace([event(1, 0, 10)])
    assert (
        Job(1, [Work(0, 0.01)], iterations=1)
        .trace()
        .device_events.select("start_ns", "end_ns")
        .equals(trace.device_events.select("start_ns", "end_ns"))
    )
