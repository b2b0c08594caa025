"""Programs that show one thing which a diagnosis of real traces once got wrong, and the twins made of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from random import Random

import polars as pl
from msgspec.structs import replace

from benchmarks.cases.additions import add_worker, work_in_pauses
from benchmarks.cases.case import HEALTHY
from benchmarks.cases.disturbances import drop_calls, rebuild
from benchmarks.cases.dressing import dress, mark_step
from benchmarks.cases.lookalikes import draw_training, interrupt, plan_patient_host
from benchmarks.cases.played import NONE, ONE, TWIN_SEED, HandingMachine, Job, LateMachine, Twin, make_job
from deepprof.collectors.trace import FAILED_ALLOCATIONS, MEMORY_EVENTS, Trace
from deepprof.simulation.host_problems import LAUNCH_NS
from deepprof.simulation.machine import DEVICE_BYTES_PER_NS
from deepprof.simulation.models import SimulatedModel, draw_model, shrink_model
from deepprof.simulation.plan import RankPlan, SimulationRequest
from deepprof.simulation.steps import MAIN_STREAM, Call, Copy, HostOperator, Join, Launch, Pause, Reduce, Step
from deepprof.simulation.training import Training, load_in_process, load_prefetched, read_value

__all__ = [
    "TWINS",
    "UPDATE",
    "plan_allocating",
    "plan_blocked",
    "plan_device_copies",
    "plan_eager",
    "plan_filled_gap",
    "plan_handed_over",
    "plan_late_batches",
    "plan_loads_code",
    "plan_masked_copies",
    "plan_serial_reductions",
    "plan_short",
    "plan_silence",
    "plan_slower_loader",
    "plan_updates_inside",
]

LATE, OF = 16, 30  # iterations whose batch is late
LOAD_NS = 2_000_000_000  # of a module, in the call that needs it first
USUAL_NS = 150_000  # that a batch which is ready takes
EXTRA_STREAM = 31
EAGER_PACE = 2.0
SHORT_NS = 15_000, 60_000  # of kernels that last longer than their launches, in iterations of milliseconds
FULL_NBYTES = 80_000_000_000
SMALL_NBYTES, MASKED_NBYTES = 4_096, 2_000_000_000
UPDATE = "void tensorflow::functor::ApplyAdamKernel<float, false>(int, float*, float*, float*, float const*)"


def plan_late_batches(request: SimulationRequest, *, hidden: bool) -> RankPlan:
    """In 16 of 30 iterations the batch is late; `hidden` where the device has work enough meanwhile."""
    training = draw_training(request.random, reads=not hidden)
    late = set(request.random.sample(range(OF), LATE))
    whole = training.model.device_ns
    ns = round(0.5 * (whole - LAUNCH_NS * len(training.model.launches))) if hidden else 2 * whole
    return RankPlan(build=replace(training, load=lambda i: load_prefetched(ns if i % OF in late else USUAL_NS)).build)


def plan_allocating(request: SimulationRequest, *, share: float) -> RankPlan:
    """The iterations that allocate take seven times as long: that `share` of them, or the first few alone (0)."""
    training = draw_training(request.random, reads=True)
    ns = 3 * training.model.device_ns
    steps = (Call("cudaFree", ns, drains=True), Call("cudaMalloc", ns, drains=True))
    slow = set(request.random.sample(range(3, request.iterations), round(share * request.iterations)))
    return interrupt(training, steps, lambda index: index in slow or (not share and 0 <= index < 2))


def plan_slower_loader(request: SimulationRequest, *, named: bool) -> RankPlan:
    """What the host does before an iteration lasts longer every time: loading data, or operators that are not named."""
    training = draw_training(request.random, reads=True)
    whole = training.model.device_ns

    def load(index: int) -> Iterable[Step]:
        ns = round(whole * (0.1 + 0.5 * max(0, index) / request.iterations))
        return (
            load_in_process(ns) if named else (*load_prefetched(USUAL_NS), *(HostOperator("aten::cat", ns // 8),) * 8)
        )

    return RankPlan(build=replace(training, load=load).build)


def plan_filled_gap(request: SimulationRequest, *, filled: bool) -> RankPlan:
    """After the backward pass the host writes logs; a collective on another stream may run as long."""
    training = draw_training(request.random, reads=False)
    ns = round(0.8 * training.model.device_ns)

    def build(index: int) -> Iterator[Step]:
        yield from training.build(index)
        if filled:
            yield Reduce(3 * ns, ns)
            yield Join()
        yield from (*read_value(), Pause(20_000 if filled else ns))

    return RankPlan(build=build)


def plan_loads_code(request: SimulationRequest, *, call: str, at: int) -> RankPlan:
    """One call loads a module, for two seconds, in one iteration."""
    training = replace(draw_training(request.random, reads=True), tunes=False)
    first = (Call(call, LOAD_NS),)
    return RankPlan(build=replace(training, before_forward=lambda index: first if index == at else ()).build, warmup=0)


def plan_blocked(request: SimulationRequest, *, hidden: bool) -> RankPlan:
    """One call of every iteration is blocked; `hidden` where the device has work enough meanwhile."""
    training = draw_training(request.random, reads=not hidden)
    whole = training.model.device_ns
    ns = round(0.5 * (whole - LAUNCH_NS * len(training.model.launches))) if hidden else whole
    return RankPlan(build=replace(training, before_forward=lambda _: (Call("cudaLaunchKernel", ns),)).build)


def plan_short(request: SimulationRequest) -> RankPlan:
    """Iterations of a few milliseconds, at whose end the host waits."""
    training = draw_training(request.random, reads=True)
    return RankPlan(build=replace(training, model=shrink_model(training.model, *SHORT_NS)).build)


def plan_eager(request: SimulationRequest) -> RankPlan:
    """A small model whose kernels are done before the host has launched the next."""
    return RankPlan(build=draw_eager(request.random).build, pace=EAGER_PACE, warmup=0)


def draw_eager(random: Random) -> Training:
    """Return the training of a small model, of which the host launches every kernel by itself."""
    model = shrink_model(draw_model(random), 2_500, 9_000)
    return Training(model=model, load=lambda _: load_prefetched(40_000), tunes=False, statistics=False)


def plan_masked_copies(request: SimulationRequest) -> RankPlan:
    """The same with a copy within the device that hides most of the launching, and is no longer than that."""
    copy = Copy("DtoD", MASKED_NBYTES, pinned=True, stream=MAIN_STREAM)
    training = replace(draw_eager(request.random), before_forward=lambda _: (copy,), end=lambda _: read_value())
    return RankPlan(build=training.build, pace=EAGER_PACE, warmup=0)


def plan_silence(request: SimulationRequest) -> RankPlan:
    """Between forward and backward pass the host is silent: no call, no operator, as long as the device computes."""
    training = draw_training(request.random, reads=True)
    silence = (*read_value(), Pause(training.model.device_ns))
    return RankPlan(build=replace(training, after_backward=silence).build)


def plan_device_copies(request: SimulationRequest, *, hidden: bool) -> RankPlan:
    """Large copies within the device, on the main stream or next to the computation."""
    training = draw_training(request.random, reads=False)
    nbytes = round(0.35 * training.model.device_ns * DEVICE_BYTES_PER_NS)
    stream = EXTRA_STREAM if hidden else MAIN_STREAM
    copy = Copy("DtoD", nbytes, pinned=True, stream=stream)
    return RankPlan(build=replace(training, before_forward=lambda _: (copy,)).build)


def plan_handed_over(request: SimulationRequest, *, stream: int) -> RankPlan:
    """Every other kernel's result is copied for the next one on a stream, which may be another one than theirs."""
    training = draw_training(request.random, reads=False)
    copy = Copy("DtoD", SMALL_NBYTES, pinned=True, stream=stream)

    def build(index: int) -> Iterator[Step]:
        kernels = 0
        for step in training.build(index):
            yield step
            kernels += isinstance(step, Launch)
            if isinstance(step, Launch) and kernels % 2:
                yield copy

    return RankPlan(build=build)


def plan_serial_reductions(request: SimulationRequest, *, count: int) -> RankPlan:
    """After the backward pass every parameter's gradient is reduced by itself, one after the other."""
    training = draw_training(request.random, reads=True)
    each = Reduce(60_000, max(15_000, round(0.6 * training.model.device_ns / max(1, count))))

    def build(index: int) -> Iterator[Step]:
        yield from training.build(index)
        yield from (each,) * count
        yield from (Join(),) * bool(count)

    return RankPlan(build=build)


def plan_updates_inside(request: SimulationRequest) -> RankPlan:
    """Every variable is updated as soon as its gradient is there, as Keras does."""
    training = draw_training(request.random, reads=True)
    model: SimulatedModel = training.model
    update = Launch("ApplyAdam", UPDATE, 4_000)
    blocks = tuple((*block, update, update) for block in model.blocks_backward)
    updated = replace(model, blocks_backward=blocks, optimizer=())

    return RankPlan(build=replace(training, model=updated, statistics=False, tunes=False).build, warmup=0)


def mark_dressed(trace: Trace) -> Trace:
    """Return the trace as TensorFlow's profiler writes one step: its own names, and the device's line `Steps`."""
    return mark_step(dress(trace, "tensorflow"))


def fill_memory(trace: Trace, *, fails: bool) -> Trace:
    """Return the trace with a device that a block fills up to a hundredth, for which one more may be asked in vain."""
    begin, end = int(trace.device_events["start_ns"].item(0)), int(trace.device_events["end_ns"].item(-1))
    block = {"time_ns": begin, "process": 1, "thread": 1, "device": 0, "address": 1 << 30, "nbytes": FULL_NBYTES}
    totals = {"allocated_nbytes": FULL_NBYTES, "reserved_nbytes": FULL_NBYTES}
    failed = {"time_ns": end, "device": 0, "nbytes": FULL_NBYTES // 10, "free_nbytes": FULL_NBYTES // 100}
    return rebuild(
        trace,
        memory_events=pl.DataFrame([block | totals], schema=MEMORY_EVENTS),
        failed_allocations=pl.DataFrame([failed] * fails, schema=FAILED_ALLOCATIONS),
    )


BLAMES = ("launch-bound", "allocator-bound", "host-bound", "input-bound")
UPDATES = make_job(plan_updates_inside, 1)
TENSORFLOW = partial(dress, flavour="tensorflow")
TWINS = {
    "one step with updates in its backward pass, marked": Twin(
        UPDATES, (HEALTHY,), loops=NONE, change=mark_dressed, single=True
    ),
    "one step with updates in its backward pass": Twin(UPDATES, (HEALTHY,), loops=NONE, change=TENSORFLOW, single=True),
    "8 steps with updates in their backward pass": Twin(
        make_job(plan_updates_inside, 8), (HEALTHY,), loops=ONE, change=TENSORFLOW
    ),
    "late batches in 16 of 30": Twin(
        make_job(plan_late_batches, 30, hidden=False), ("input-bound",), ("graph-growth", "drift")
    ),
    "late batches in 16 of 30, hidden": Twin(make_job(plan_late_batches, 30, hidden=True), (HEALTHY,)),
    "slow iterations allocate": Twin(make_job(plan_allocating, 28, share=0.4), ("allocator-bound",)),
    "the first two allocate": Twin(make_job(plan_allocating, 28, share=0.0), (HEALTHY,), ("allocator-bound",)),
    "loading takes longer every time": Twin(
        make_job(plan_slower_loader, 30, named=True), ("input-bound",), ("graph-growth",)
    ),
    "unnamed work takes longer every time": Twin(
        make_job(plan_slower_loader, 30, named=False), ("graph-growth",), ("input-bound",)
    ),
    "collectives fill the host's gaps": Twin(
        make_job(plan_filled_gap, filled=True), ("communication-bound",), ("host-bound",), change=drop_calls
    ),
    "the host's gaps are empty": Twin(
        make_job(plan_filled_gap, filled=False), ("host-bound",), ("communication-bound",), change=drop_calls
    ),
    "one launch of eight iterations is blocked": Twin(
        make_job(plan_loads_code, 8, call="cudaLaunchKernel", at=3), (HEALTHY,), BLAMES
    ),
    "one launch of every iteration is blocked": Twin(make_job(plan_blocked, hidden=False), ("blocked-call",), BLAMES),
    "a blocked launch is hidden": Twin(make_job(plan_blocked, hidden=True), (HEALTHY,), (*BLAMES, "blocked-call")),
    "one launch of four marked steps loads code": Twin(
        make_job(plan_loads_code, 4, annotate=True, call="cudaLaunchKernel", at=2), (HEALTHY,), BLAMES
    ),
    "one marked step's first launch loads code": Twin(
        make_job(plan_loads_code, 1, call="cudaLaunchKernel", at=1), (HEALTHY,), BLAMES, NONE, single=True
    ),
    "one marked step's first free starts a library": Twin(
        make_job(plan_loads_code, 1, call="cudaFree", at=1), (HEALTHY,), BLAMES, NONE, single=True
    ),
    "short steps are submitted late": Twin(
        Job(plan_short, 16, TWIN_SEED, LateMachine), ("late-submission",), (*BLAMES, "unseen-work", "sync-bound")
    ),
    "short steps are submitted at once": Twin(make_job(plan_short), (HEALTHY,), ("late-submission",)),
    "every launch is slow": Twin(make_job(plan_eager, 8), ("launch-bound",), BLAMES[1:]),
    "the host is silent": Twin(make_job(plan_silence), ("host-bound",), ("launch-bound", "allocator-bound")),
    "another thread works while the host is silent": Twin(
        make_job(plan_silence), ("other-thread",), ("host-bound",), change=partial(work_in_pauses, launching=False)
    ),
    "the launching thread works while it is silent": Twin(
        make_job(plan_silence), ("host-bound",), ("other-thread",), change=partial(work_in_pauses, launching=True)
    ),
    "another thread works while the device is busy": Twin(
        make_job(plan_blocked, hidden=True), (HEALTHY,), (*BLAMES, "other-thread"), change=add_worker
    ),
    "another thread works all the time": Twin(
        make_job(plan_silence), ("host-bound",), ("other-thread",), change=add_worker
    ),
    "three marked steps, launching": Twin(make_job(plan_eager, 3, annotate=True), ("launch-bound",), loops=ONE),
    "one marked step, launching": Twin(make_job(plan_eager, 1), ("launch-bound",), single=True),
    "copies within the device": Twin(make_job(plan_device_copies, hidden=False), ("device-copies",)),
    "copies within the device, in front of late launches": Twin(
        make_job(plan_masked_copies), (HEALTHY, "launch-bound")
    ),
    "copies within the device, hidden": Twin(make_job(plan_device_copies, hidden=True), (HEALTHY,), ("device-copies",)),
    "kernels wait for copies on another stream": Twin(
        Job(partial(plan_handed_over, stream=EXTRA_STREAM), 16, TWIN_SEED, HandingMachine),
        ("dependency-bound",),
        ("sync-bound", "host-bound", "device-copies"),
    ),
    "kernels wait for copies on their own stream": Twin(
        Job(partial(plan_handed_over, stream=MAIN_STREAM), 16, TWIN_SEED, HandingMachine),
        (HEALTHY,),
        ("dependency-bound",),
    ),
    "serial reductions": Twin(make_job(plan_serial_reductions, 10, count=200), ("communication-bound",)),
    "an allocation fails": Twin(
        make_job(plan_patient_host), ("out-of-memory",), change=partial(fill_memory, fails=True)
    ),
    "the device is nearly full": Twin(
        make_job(plan_patient_host), (HEALTHY,), ("out-of-memory",), change=partial(fill_memory, fails=False)
    ),
    "no reductions": Twin(make_job(plan_serial_reductions, 10, count=0), (HEALTHY,), ("communication-bound",)),
}
