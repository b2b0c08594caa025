"""Jobs whose host launches fast enough: tiny kernels, a clock that drops, and micro-batches, which are healthy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from deepprof.simulation.host_problems import draw_loading
from deepprof.simulation.models import deepen_model, draw_model, launch_adam, shrink_model
from deepprof.simulation.plan import RankPlan, SimulationRequest
from deepprof.simulation.steps import MAIN_STREAM, Copy, GraphReplay, Launch, Step
from deepprof.simulation.training import Training, draw_memory, load_prefetched, read_value

GRAPH = 3  # the driver's id of the captured graph
MICRO_BATCHES = 4


def plan_small_kernels(request: SimulationRequest) -> RankPlan:
    """Plan a job in which one graph launch per iteration replays thousands of kernels of a few microseconds."""
    random = request.random
    ns = max(1_200, round(random.randint(2_000, 3_200) / request.strength**0.5))
    model = shrink_model(draw_model(random), ns, 2 * ns)
    model = deepen_model(model, -(-random.randint(16, 26) // len(model.blocks)))
    loading_ns = draw_loading(random) // 4
    graph = GraphReplay(launch_adam(model, ns).launches, GRAPH)

    def build(_: int) -> Iterator[Step]:
        yield from _replay_training(loading_ns, graph)

    return RankPlan(build=build, warmup=0)


def _replay_training(loading_ns: int, graph: GraphReplay) -> Iterator[Step]:
    """Yield an iteration that is one graph: the batch is copied to the graph's input, and the loss is read after it."""
    yield from load_prefetched(loading_ns)
    yield Copy("HtoD", 65_536, pinned=True, stream=MAIN_STREAM)
    yield graph
    yield from read_value()


def plan_drift(request: SimulationRequest) -> RankPlan:
    """Plan a job in which every kernel lasts longer from some iteration on: the GPU lowered its clock."""
    random = request.random
    model = draw_model(random)
    ns = draw_loading(random)
    training = Training(model=model, load=lambda _: load_prefetched(ns), block_nbytes=draw_memory(random))
    factor = 1 + request.strength * random.uniform(0.2, 0.3)
    change_at = max(1, round(request.iterations * random.uniform(0.38, 0.62)))

    def build(index: int) -> Iterator[Step]:
        yield from _stretch(training.build(index), factor if index >= change_at else 1)

    return RankPlan(build=build, change_at=change_at if change_at < request.iterations else None)


def _stretch(steps: Iterable[Step], factor: float) -> Iterator[Step]:
    """Yield `steps` with kernels `factor` times as long."""
    for step in steps:
        yield replace(step, ns=round(step.ns * factor)) if isinstance(step, Launch) else step


def plan_accumulation(request: SimulationRequest) -> RankPlan:
    """Plan a job in which gradients of four micro-batches are added up before the optimizer uses them."""
    random = request.random
    model = draw_model(random)
    ns = draw_loading(random)
    nbytes = draw_memory(random)
    training = Training(
        model=model, load=lambda _: load_prefetched(ns), micro_batches=MICRO_BATCHES, block_nbytes=nbytes
    )
    return RankPlan(build=training.build)
