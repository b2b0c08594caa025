"""Jobs that look ill and are not, or whose mistake hides behind something else that is unusual but wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from random import Random

from msgspec.structs import replace

from deepprof.simulation.host_problems import draw_loading
from deepprof.simulation.models import draw_model, launch_adam
from deepprof.simulation.plan import RankPlan, SimulationRequest
from deepprof.simulation.steps import MAIN_STREAM, Close, Copy, Launch, Open, Pause, Step
from deepprof.simulation.training import Training, load_in_process, load_prefetched, read_value

__all__ = [
    "draw_training",
    "interrupt",
    "plan_accumulated_input",
    "plan_checkpoints",
    "plan_evaluation",
    "plan_flushes",
    "plan_hidden_copies",
    "plan_hidden_loader",
    "plan_long_first",
    "plan_noise",
    "plan_patient_host",
    "plan_requests",
    "plan_slow_start",
    "plan_tiny_optimizer",
]

PINNED_BYTES_PER_NS = 23.5  # of the simulated machine
LAUNCH_NS = 14_000  # of the host, with its own reading clock
TINY_NS = 3_000


def draw_training(random: Random, *, reads: bool) -> Training:
    """Return a healthy training job, which reads its loss in every iteration or never."""
    model, ns = draw_model(random), draw_loading(random) // 2
    return Training(model=model, load=lambda _: load_prefetched(ns), end=lambda _: read_value() if reads else ())


def interrupt(training: Training, steps: Iterable[Step], when: Callable[[int], bool]) -> RankPlan:
    """Return the job with `steps` at the end of the iterations that `when` names."""
    again = tuple(steps)

    def build(index: int) -> Iterator[Step]:
        yield from training.build(index)
        yield from again if when(index) else ()

    return RankPlan(build=build)


def slow_down(steps: Iterable[Step], factor: float) -> Iterator[Step]:
    """Yield the steps with kernels `factor` times as long."""
    for step in steps:
        yield replace(step, ns=round(step.ns * factor)) if isinstance(step, Launch) else step


def plan_hidden_loader(request: SimulationRequest) -> RankPlan:
    """The main thread makes batches for most of the time, but the device has enough to do meanwhile."""
    training = draw_training(request.random, reads=False)
    free = training.model.device_ns - LAUNCH_NS * len(training.model.launches)
    ns = max(200_000, round(0.8 * free))
    return RankPlan(build=replace(training, load=lambda _: load_in_process(ns)).build)


def plan_patient_host(request: SimulationRequest) -> RankPlan:
    """The host waits at the end of every iteration, for most of its time, and the device hardly notices."""
    return RankPlan(build=draw_training(request.random, reads=True).build)


def plan_hidden_copies(request: SimulationRequest) -> RankPlan:
    """Copies run for most of the time, all of them next to computation."""
    training = draw_training(request.random, reads=False)
    nbytes = round(0.7 * training.model.device_ns * PINNED_BYTES_PER_NS)
    return RankPlan(build=replace(training, model=replace(training.model, batch_nbytes=nbytes)).build)


def plan_slow_start(request: SimulationRequest) -> RankPlan:
    """The first four iterations last twice as long as the others: clocks rise, caches fill."""
    training = draw_training(request.random, reads=True)
    return RankPlan(build=lambda index: slow_down(training.build(index), 2.0 if index < 4 else 1.0), warmup=4)


def plan_long_first(request: SimulationRequest) -> RankPlan:
    """Code is compiled at the end of the first iteration for 20 times as long as one takes."""
    training = draw_training(request.random, reads=True)
    return interrupt(training, [Pause(20 * training.model.device_ns)], lambda index: index == 0)


def plan_checkpoints(request: SimulationRequest) -> RankPlan:
    """Every tenth iteration the weights are copied to the host and written, for as long as an iteration needs."""
    training = draw_training(request.random, reads=True)
    nbytes = round(0.4 * training.model.device_ns * 6)
    save = (Copy("DtoH", nbytes, pinned=False), Pause(round(0.8 * training.model.device_ns)))
    return interrupt(training, save, lambda index: index % 10 == 9)


def plan_evaluation(request: SimulationRequest) -> RankPlan:
    """Every fifth iteration is followed by three forward passes over other data."""
    training = draw_training(request.random, reads=True)
    return interrupt(training, training.model.forward * 3, lambda index: index % 5 == 4)


def plan_noise(request: SimulationRequest) -> RankPlan:
    """The system takes the host away for 2 to 4 ms, three times in a capture."""
    training = draw_training(request.random, reads=True)
    stalls = {index: request.random.randint(2_000_000, 4_000_000) for index in (4, 9, 14)}
    before = (Pause(ns) for ns in stalls.values())
    waits = dict(zip(stalls, before, strict=True))
    return RankPlan(build=lambda index: (*training.build(index), *((waits[index],) if index in waits else ())))


def plan_flushes(request: SimulationRequest) -> RankPlan:
    """The profiler writes its buffers for 5 to 30 ms after some iterations, and reports it."""
    training = draw_training(request.random, reads=True)
    lengths = {index: request.random.randint(5_000_000, 30_000_000) for index in (3, 4, 8, 13)}

    def build(index: int) -> Iterator[Step]:
        yield from training.build(index)
        if index in lengths:
            yield from (Open("Buffer Flush", "overhead"), Pause(lengths[index]), Close())

    return RankPlan(build=build)


def plan_tiny_optimizer(request: SimulationRequest) -> RankPlan:
    """The optimizer is not fused: many kernels of 3 µs, which the host launched long before."""
    training = draw_training(request.random, reads=False)
    optimizer = launch_adam(training.model, TINY_NS).optimizer
    share = round(0.15 * training.model.device_ns / TINY_NS)
    return RankPlan(build=replace(training, model=replace(training.model, optimizer=optimizer[:share])).build)


def plan_accumulated_input(request: SimulationRequest) -> RankPlan:
    """Four micro-batches per iteration, each made by the main thread for longer than the device computes on it."""
    training = draw_training(request.random, reads=False)
    ns = round(1.5 * training.model.device_ns)
    return RankPlan(build=replace(training, load=lambda _: load_in_process(ns), micro_batches=4).build)


def plan_requests(request: SimulationRequest) -> RankPlan:
    """A server computes batch by batch, and waits for requests in between, for times that vary."""
    random = request.random
    model = draw_model(random)
    waits = [round(model.device_ns * random.uniform(0.2, 1.5)) for _ in range(request.iterations + 2)]

    def build(index: int) -> Iterator[Step]:
        yield Copy("HtoD", 65_536, pinned=True, stream=MAIN_STREAM)
        yield from model.forward
        yield from (*read_value(), Pause(waits[index + 1]))

    return RankPlan(build=build, warmup=0)
