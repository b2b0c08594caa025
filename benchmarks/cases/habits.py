"""What people do in their own programs: losses that are kept, forward passes alone, training without a device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from benchmarks.cases.case import HEALTHY
from benchmarks.cases.lookalikes import draw_training
from benchmarks.cases.played import NONE, ONE, Twin, make_job
from deepprof.collectors.trace import Trace
from deepprof.simulation.growth import MEGABYTE
from deepprof.simulation.kernels import EXTRA_TERM
from deepprof.simulation.models import SimulatedModel
from deepprof.simulation.plan import RankPlan, SimulationRequest
from deepprof.simulation.steps import Allocate, Close, HostOperator, Launch, Open, Pause, Step
from deepprof.simulation.training import load_prefetched, read_value

__all__ = ["TWINS", "plan_cache", "plan_forward_passes", "plan_kept_losses", "plan_on_host"]

STALL_NS = 3_000_000
SLOWER = 1.2  # times the last operator of a job that slows down is as long as the first one, or more
LOADING_NS = 40_000
BACKWARD = "autograd::engine::evaluate_function: MulBackward0"


def plan_kept_losses(request: SimulationRequest, *, kept: bool) -> RankPlan:
    """What is minimized is the mean of all losses so far, and each of them has its graph still."""
    training = draw_training(request.random, reads=True)
    model: SimulatedModel = training.model

    def build(index: int) -> Iterator[Step]:
        terms = EXTRA_TERM * (max(index, 0) if kept else 1)
        back = tuple(replace(term, op=BACKWARD, backward=True) for term in terms)
        longer = replace(model, head=(*model.head, *terms), head_backward=(*back, *model.head_backward))
        return replace(training, model=longer, statistics=False).build(index)

    return RankPlan(build=build)


def plan_forward_passes(request: SimulationRequest) -> RankPlan:
    """A model is asked, and never trained; what it answers is read every time."""
    training = draw_training(request.random, reads=True)

    def build(_: int) -> Iterator[Step]:
        yield from load_prefetched(LOADING_NS)
        yield from training.model.forward
        yield from read_value()

    return RankPlan(build=build, warmup=0)


def plan_on_host(request: SimulationRequest, *, slower: bool) -> RankPlan:
    """Training on a CPU, which the system takes away at times, or which slows down all the while."""
    training = draw_training(request.random, reads=False)
    stalled = set(request.random.sample(range(request.iterations), 3)) if not slower else set()

    def build(index: int) -> Iterator[Step]:
        pace = 1 + (SLOWER - 1) * index / request.iterations if slower else request.random.uniform(0.85, 1.2)
        yield from (Pause(STALL_NS),) * (index in stalled)
        yield from on_host(training.build(index), pace)

    return RankPlan(build=build, warmup=0)


def on_host(steps: Iterable[Step], pace: float) -> Iterator[Step]:
    """Yield the operators of the launches among the steps, and the ranges around them."""
    for step in steps:
        if isinstance(step, Launch):
            yield HostOperator(step.op, round(step.ns * pace))
        elif isinstance(step, Open | Close):
            yield step


def forget_device(trace: Trace) -> Trace:
    """Return the trace as a machine without a GPU would have written it."""
    return replace(trace, devices=trace.devices.clear(), names=trace.names.str.replace("cudnn", "mkldnn", literal=True))


def plan_cache(request: SimulationRequest, *, full: int) -> RankPlan:
    """Keep some memory of each of the first `full` iterations, as a cache does."""
    training = draw_training(request.random, reads=True)
    kept = Allocate(request.random.randint(4, 40) * MEGABYTE, kept=True)

    def build(index: int) -> Iterator[Step]:
        if index < full:
            yield kept
        yield from training.build(index)

    return RankPlan(build=build)


GROWING = make_job(plan_kept_losses, 120, annotate=True, kept=True)
STEADY = make_job(plan_kept_losses, 120, annotate=True, kept=False)
TWINS = {
    "losses keep their graphs, marked": Twin(GROWING, ("graph-growth",), loops=ONE, counted=True),
    "losses keep their graphs, only the optimizer marked": Twin(
        make_job(plan_kept_losses, 40, kept=True), ("graph-growth",), loops=ONE, counted=True
    ),
    "losses keep their graphs, told how often": Twin(
        GROWING, ("graph-growth",), ("capture-incomplete",), ONE, counted=True, told=True
    ),
    "no loss keeps its graph, marked": Twin(STEADY, (HEALTHY,), ("graph-growth",), loops=ONE, counted=True),
    "no loss keeps its graph, told how often": Twin(STEADY, (HEALTHY,), loops=ONE, counted=True, told=True),
    "a cache without a limit": Twin(make_job(plan_cache, 24, full=24), ("memory-growth",), ("graph-growth",)),
    "a cache that is soon full": Twin(make_job(plan_cache, 24, full=8), (HEALTHY,), ("memory-growth",)),
    "40 forward passes": Twin(make_job(plan_forward_passes, 40), (HEALTHY,), loops=ONE, counted=True),
    "one forward pass": Twin(make_job(plan_forward_passes, 1), (HEALTHY,), loops=NONE, single=True),
    "a CPU that slows down": Twin(make_job(plan_on_host, 30, slower=True), ("drift",), loops=ONE, change=forget_device),
    "a CPU that is taken away at times": Twin(
        make_job(plan_on_host, 30, slower=False), (HEALTHY,), ("drift",), ONE, forget_device
    ),
}
