"""Jobs in which something is made anew, or added, in every iteration: memory, compiled code, graphs."""

from __future__ import annotations

from collections.abc import Iterator

from deepprof.simulation.host_problems import draw_loading
from deepprof.simulation.models import compile_model, draw_model
from deepprof.simulation.plan import RankPlan, SimulationRequest
from deepprof.simulation.steps import (
    MAIN_STREAM,
    Allocate,
    Call,
    CapturedLaunch,
    Close,
    Copy,
    GraphReplay,
    Open,
    Pause,
    Step,
)
from deepprof.simulation.training import Training, load_prefetched, read_value

MEGABYTE = 1_048_576
COMPILING = ("_compile.compile_inner (dynamo_timed)", "OutputGraph.call_user_compiler (dynamo_timed)")


def plan_memory_growth(request: SimulationRequest) -> RankPlan:
    """Plan a job that keeps losses with their graphs: memory that no iteration gives back, at no cost in time."""
    random = request.random
    model = draw_model(random)
    ns = draw_loading(random)
    kept = Allocate(max(MEGABYTE, round(random.randint(3, 12) * MEGABYTE * request.strength)), kept=True)
    training = Training(
        model=model,
        load=lambda _: load_prefetched(ns),
        after_block=(kept,),
        block_nbytes=random.randint(8, 96) * MEGABYTE,
    )
    return RankPlan(build=training.build)


def plan_recompilation(request: SimulationRequest) -> RankPlan:
    """Plan a job in which the shapes of every batch differ, and the model is compiled for each of them."""
    random = request.random
    model = compile_model(draw_model(random))
    ns = draw_loading(random)
    idle_ns = max(model.device_ns, 12_000_000) * request.strength * random.uniform(0.6, 1.2)
    compile_ns = round(model.device_ns + idle_ns)  # the GPU still works on what was launched before
    loads, call = random.randint(3, 9), random.choice(("cuModuleLoadData", "cuLibraryLoadData"))
    category = random.choice(("cpu_op", "user_annotation"))  # PyTorch's release decides which
    load = (Pause(compile_ns // loads), Call(call, 240_000))
    steps = (*(Open(name, category) for name in COMPILING), *load * loads, *(Close() for _ in COMPILING))
    training = Training(model=model, load=lambda _: load_prefetched(ns), before_forward=lambda _: steps, region=True)
    return RankPlan(build=training.build)


def plan_recapture(request: SimulationRequest) -> RankPlan:
    """Plan a job in which every iteration is captured into a new graph, which is replayed once."""
    random = request.random
    model = draw_model(random)
    loading_ns = draw_loading(random)
    instantiate_ns = round(model.device_ns * request.strength * random.uniform(0.35, 0.7))

    def build(index: int) -> Iterator[Step]:
        yield from load_prefetched(loading_ns)
        yield Copy("HtoD", model.batch_nbytes, pinned=True, stream=MAIN_STREAM)
        yield from (Call("cudaDeviceSynchronize", 6_000, drains=True), Call("cudaStreamBeginCapture", 9_000))
        yield from map(CapturedLaunch, model.launches)
        yield from (Call("cudaStreamEndCapture", 180_000), Call("cudaGraphInstantiate", instantiate_ns))
        yield GraphReplay(model.launches, index + 8)
        yield from read_value()

    return RankPlan(build=build, warmup=0)
