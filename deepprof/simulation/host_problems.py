"""Jobs whose GPU waits for the host: for data, for launches, for values read back, for memory, for plain Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepprof.simulation.kernels import STATISTICS
from deepprof.simulation.models import SimulatedModel, draw_model, launch_adam, shrink_model
from deepprof.simulation.plan import RankPlan, SimulationRequest
from deepprof.simulation.steps import MAIN_STREAM, Call, Close, Launch, Open, Pause, Step
from deepprof.simulation.training import (
    PREFETCH_STREAM,
    Training,
    draw_memory,
    load_in_process,
    load_prefetched,
    read_value,
)

if TYPE_CHECKING:
    from random import Random


LAUNCH_NS = 9_500  # of the host, at a pace of 1
ANSWER_NS = 35_000  # from the end of a kernel that the host waits for to the start of the next one
PARAMETERS = 12  # of a block; the norms of their gradients are logged one by one
RARE = 8  # one in this many batches is late


def draw_loading(random: Random) -> int:
    """Return how long the main thread waits for a batch that is ready, in nanoseconds."""
    return random.randint(100_000, 300_000)


def _draw_copy_stream(random: Random, model: SimulatedModel) -> int:
    """Return the stream on which batches are copied: large ones next to the computation."""
    return MAIN_STREAM if model.batch_nbytes < 1_000_000 and random.random() < 0.5 else PREFETCH_STREAM


def plan_input_bound(request: SimulationRequest) -> RankPlan:
    """Plan a job whose main thread makes every batch itself, for about as long as the GPU computes.

    A host that reads no loss has launched ahead before it loads, so it must load longer to make the GPU wait.
    """
    random = request.random
    model = draw_model(random)
    reads = random.random() < 0.6
    ns = round(model.device_ns * request.strength * random.uniform(0.75, 1.4))
    if not reads:
        ns += max(0, model.device_ns - LAUNCH_NS * len(model.launches))
    end = read_value(pinned=random.random() < 0.5) if reads else ()
    training = Training(
        model=model,
        load=lambda _: load_in_process(ns),
        end=lambda _: end,
        copy_stream=_draw_copy_stream(random, model),
        block_nbytes=draw_memory(random),
    )
    return RankPlan(build=training.build)


def plan_input_fixed(request: SimulationRequest) -> RankPlan:
    """Plan the same job with worker processes that have the next batch ready."""
    random = request.random
    model = draw_model(random)
    ns = draw_loading(random)
    stream = _draw_copy_stream(random, model)
    nbytes = draw_memory(random)
    training = Training(model=model, load=lambda _: load_prefetched(ns), copy_stream=stream, block_nbytes=nbytes)
    return RankPlan(build=training.build)


def plan_launch_bound(request: SimulationRequest) -> RankPlan:
    """Plan a small model in eager mode: every kernel is done before the host has launched the next."""
    random = request.random
    model = shrink_model(draw_model(random), 2_500, 9_000)
    if random.random() < 0.5:
        model = launch_adam(model, 2_200)
    ns = draw_loading(random) // 2
    training = Training(model=model, load=lambda _: load_prefetched(ns), tunes=False, statistics=False)
    return RankPlan(build=training.build, pace=random.uniform(1.3, 2.4) * request.strength**0.5, warmup=0)


def plan_sync_bound(request: SimulationRequest) -> RankPlan:
    """Plan a job that reads values back after every layer and for every gradient, and examines each in Python."""
    random = request.random
    model = draw_model(random)
    reads = len(model.blocks) * (1 + PARAMETERS)
    share = min(0.8, request.strength * random.uniform(0.35, 0.6))  # of the device's work; below 1 the host has less
    look = Pause(max(2_000, round(model.device_ns * share / reads) - ANSWER_NS))
    norm = STATISTICS[0]
    pinned = random.random() < 0.5
    read = (*read_value(pinned=pinned), look)
    log_gradient: tuple[Step, ...] = (Launch(norm.op, norm.kernel, 6_000), *read)
    ns = draw_loading(random)
    training = Training(
        model=model,
        load=lambda _: load_prefetched(ns),
        after_block=read,
        after_backward=log_gradient * PARAMETERS * len(model.blocks),
        copy_stream=_draw_copy_stream(random, model),
    )
    return RankPlan(build=training.build)


def plan_allocator_bound(request: SimulationRequest) -> RankPlan:
    """Plan a job with nearly full memory: blocks are freed and requested again, and each call drains the GPU."""
    random = request.random
    model = draw_model(random)
    usual_ns = random.randint(180_000, 450_000)
    lost_ns = model.device_ns * request.strength * random.uniform(0.35, 0.65) / len(model.blocks)
    pairs = max(1, round(lost_ns / (2 * usual_ns)))
    call_ns = round(lost_ns / (2 * pairs))
    churn = (Call("cudaFree", call_ns, drains=True), Call("cudaMalloc", call_ns, drains=True)) * pairs
    ns = draw_loading(random)
    training = Training(
        model=model,
        load=lambda _: load_prefetched(ns),
        after_block=(Open("aten::empty", "cpu_op"), *churn, Close()),
        block_nbytes=draw_memory(random),
    )
    return RankPlan(build=training.build)


def plan_logging(request: SimulationRequest) -> RankPlan:
    """Plan a job that reads the loss and writes logs after every iteration, in Python that no range names."""
    random = request.random
    model = draw_model(random)
    log = Pause(round(model.device_ns * request.strength * random.uniform(0.45, 0.9)))
    ns = draw_loading(random)
    end = (*read_value(pinned=random.random() < 0.5), log)
    training = Training(model=model, load=lambda _: load_prefetched(ns), end=lambda _: end)
    return RankPlan(build=training.build)


def plan_starvation(request: SimulationRequest) -> RankPlan:
    """Plan a job in which now and then no batch is ready, and the next one uses several iterations' time."""
    random = request.random
    model = draw_model(random)
    ns = draw_loading(random)
    candidates = range(3, request.iterations)
    late = sorted(random.sample(candidates, min(len(candidates), max(1, request.iterations // RARE))))
    waits = {index: round(model.device_ns * request.strength * random.uniform(3, 6)) for index in late}
    end = read_value(pinned=random.random() < 0.5)
    training = Training(model=model, load=lambda index: load_prefetched(waits.get(index, ns)), end=lambda _: end)
    return RankPlan(build=training.build, slow_iterations=tuple(index - 1 for index in late))
