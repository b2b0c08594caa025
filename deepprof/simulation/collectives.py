"""Data-parallel jobs: gradients are reduced over the ranks in buckets, on their own stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from deepprof.simulation.host_problems import draw_loading
from deepprof.simulation.models import SimulatedModel, draw_model, sum_ns
from deepprof.simulation.plan import RankPlan, SimulationRequest
from deepprof.simulation.steps import Reduce
from deepprof.simulation.training import Training, load_prefetched, read_value

if TYPE_CHECKING:
    from random import Random


WORLD = 8  # ranks of a job of which only one is simulated
ELEMENTS_PER_NS = 3  # bfloat16 values that the network transfers
LAST_SHARE = 0.04  # share of the communication in the bucket that nothing hides


def _cut_buckets(model: SimulatedModel, total_ns: float, count: int, last: float) -> tuple[tuple[int, Reduce], ...]:
    """Return `count` collectives of `total_ns` in all, and after which block each is due; `last` is the last share."""
    blocks = len(model.blocks_backward)
    count = min(count, blocks)
    due = [*(round(blocks * number / count) for number in range(1, count)), blocks + 1]
    shares = [*[(1 - last) / max(1, count - 1)] * (count - 1), last]
    times = [max(12_000, round(total_ns * share)) for share in shares]
    return tuple((at, Reduce(ns * ELEMENTS_PER_NS, ns)) for at, ns in zip(due, times, strict=True))


def _hide_buckets(random: Random, model: SimulatedModel) -> tuple[tuple[int, Reduce], ...]:
    """Return collectives that end before the backward pass, except for a small last one."""
    total_ns = sum_ns(model.backward) * random.uniform(0.3, 0.5)
    return _cut_buckets(model, total_ns, random.randint(3, 6), LAST_SHARE)


def _make_training(random: Random, model: SimulatedModel, buckets: tuple[tuple[int, Reduce], ...]) -> Training:
    ns = draw_loading(random)
    return Training(model=model, load=lambda _: load_prefetched(ns), buckets=buckets)


def plan_communication_bound(request: SimulationRequest) -> RankPlan:
    """Plan a job with slow wires: when the backward pass ends, most of the communication is still to come."""
    random = request.random
    model = draw_model(random)
    count = min(random.randint(3, 6), len(model.blocks))
    exposed = request.strength * random.uniform(0.8, 1.3)
    hidden = 1 - 1 / count  # the first bucket is full when this share of the backward pass is left
    total_ns = sum_ns(model.backward) * (hidden + exposed)
    return RankPlan(build=_make_training(random, model, _cut_buckets(model, total_ns, count, 1 / count)).build)


def plan_communication_hidden(request: SimulationRequest) -> RankPlan:
    """Plan the same job with fast wires: the backward pass hides nearly all communication."""
    model = draw_model(request.random)
    return RankPlan(build=_make_training(request.random, model, _hide_buckets(request.random, model)).build)


def plan_ranks_healthy(request: SimulationRequest) -> RankPlan:
    """Plan a job whose ranks keep up with each other; no two GPUs are equally fast."""
    model = draw_model(request.random)
    training = _make_training(request.random, model, _hide_buckets(request.random, model))
    return RankPlan(build=training.build, slowness=_draw_slowness(request))


def _draw_slowness(request: SimulationRequest) -> float:
    """Return how much slower than the best this rank's GPU is by nature."""
    return [request.random.uniform(1.0, 1.015) for _ in range(request.ranks)][request.rank]


def plan_straggler(request: SimulationRequest) -> RankPlan:
    """Plan a job where all ranks wait in collectives for one whose kernels are slower, or whose batches come late."""
    random = request.random
    model = draw_model(random)
    training = _make_training(random, model, _hide_buckets(random, model))
    slowness, slow_rank = _draw_slowness(request), random.randrange(request.ranks)
    late, share, ns = random.random() < 0.35, random.uniform(0.22, 0.38) * request.strength, draw_loading(random)
    if not late:
        slowness *= 1 + share * (request.rank == slow_rank)
        return RankPlan(build=training.build, slowness=slowness, slow_rank=slow_rank)
    wait = load_prefetched(ns + round(model.device_ns * share) * (request.rank == slow_rank))
    training = replace(training, load=lambda _: wait, end=lambda _: read_value())
    return RankPlan(build=training.build, slowness=slowness, slow_rank=slow_rank)
