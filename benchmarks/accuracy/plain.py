"""Loops without inner loops, and single passes, both with times: which of the true loops are refused.

Benchmarks of one kernel, solvers, simulations and tiny models repeat a few kernels; layers of one pass do so, too. What
tells them apart is in the times, in what recurs with every repetition, and in what runs before and after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from benchmarks.accuracy.draws import at_times, between, draw_job
from benchmarks.accuracy.jobs import Job
from benchmarks.accuracy.kernels import Ints, Kernels, Names, join, kernels_of
from benchmarks.accuracy.layout import jittered, make_job
from benchmarks.accuracy.looks import Case
from benchmarks.accuracy.models import SimulatedModel, draw_model
from benchmarks.accuracy.truth import Made, Truth

JOBS, PASSES = range(7000, 7240), range(8000, 8300)  # seeds
SPREAD = 0.05  # of the logarithm of a kernel's time, from one iteration to the next
FOREIGN = 0.7  # share of the kernels before and after a loop that run nowhere in it

Rng = np.random.Generator
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class PlainLoop:
    """A loop of one iteration without inner loops.

    `setup` and `closing` count the kernels before and after it. `fed` is whether each iteration copies from the host,
    `read` whether it copies back or waits, `pause_us` how long the device idles before each.
    """

    kernels: int
    names: int
    passes: int
    setup: int
    closing: int
    fed: bool
    read: bool
    pause_us: float


def benchmark(rng: Rng) -> PlainLoop:
    """Return the calls of one to three kernels."""
    size = int(rng.integers(1, 4))
    return draw_loop(rng, size, size, (8, 5000), (0.1, 0.3))


def solver(rng: Rng) -> PlainLoop:
    """Return the steps of a solver, which uses some kernels in several places, and often reads a residual back."""
    size = between(rng, 3, 40)
    return draw_loop(rng, size, max(2, round(0.7 * size)), (8, 3000), (0.0, 0.6))


def simulation(rng: Rng) -> PlainLoop:
    """Return the time steps of a simulation."""
    size = between(rng, 2, 30)
    return draw_loop(rng, size, size, (30, 3000), (0.0, 0.2))


def tiny_model(rng: Rng) -> PlainLoop:
    """Return training or decoding with a model of few kernels."""
    size = between(rng, 4, 60)
    return draw_loop(rng, size, max(3, round(0.6 * size)), (5, 300), (0.5, 0.5))


def draw_loop(rng: Rng, kernels: int, names: int, passes: tuple[int, int], shows: tuple[float, float]) -> PlainLoop:
    """Return a loop of that size with all else drawn; `shows` are how often such loops copy from the host and to it."""
    return PlainLoop(
        kernels,
        names,
        between(rng, *passes),
        setup=int(at_times(rng, 0.6, between(rng, 1, 15))),
        closing=int(at_times(rng, 0.4, between(rng, 1, 4))),
        fed=bool(rng.random() < shows[0]),
        read=bool(rng.random() < shows[1]),
        pause_us=at_times(rng, 0.5, between(rng, 20, 2000)),
    )


KINDS: tuple[Callable[[Rng], PlainLoop], ...] = (benchmark, solver, simulation, tiny_model)


def cases() -> Iterator[Case]:
    """Yield true loops, a fifth of them training jobs of all kinds, and single passes."""
    for seed in JOBS:
        kind = KINDS[seed % 5] if seed % 5 < len(KINDS) else None
        name = "training job" if kind is None else kind.__name__.replace("_", " ")
        yield Case("plain", name, seed, partial(make_loop, seed, kind) if kind else partial(make_training, seed))
    for seed in PASSES:
        yield Case("plain", ("forward pass", "training step")[seed % 2], seed, partial(make_pass, seed))


def make_training(seed: int) -> Made:
    """Return a training job of any kind, of which no copy and no wait is known."""
    made = make_job(draw_job(seed))
    return replace(made, syncs=np.zeros(len(made.symbols), bool))


def make_loop(seed: int, kind: Callable[[Rng], PlainLoop]) -> Made:
    """Return the loop of that seed."""
    rng, names = np.random.default_rng([seed, 6]), Names()
    loop = kind(rng)
    own = names.new(loop.names)
    symbols = np.concatenate([own, rng.choice(own, loop.kernels - loop.names)])
    body = kernels_of(symbols, rng)
    body["gap_us"][0] += loop.pause_us
    around = [edge(size, own, names, rng) for size in (loop.setup, loop.closing)]
    shown = join([around[0], *[body] * loop.passes, around[1]])
    starts = loop.setup + np.arange(loop.passes) * loop.kernels
    read = starts + loop.kernels
    made = timed(shown, names, seed, fed=starts[: loop.passes * loop.fed], read=read[: loop.passes * loop.read])
    whole = np.ones(loop.passes, bool)
    truth = Truth(starts, read, whole, loop.kernels, loop.kernels, loop.kernels)
    return replace(made, truths=(truth,))


def edge(size: int, own: Ints, names: Names, rng: Rng) -> Kernels:
    """Return what runs before or after a loop: its own kernels mostly."""
    foreign = rng.random(size) < FOREIGN
    return kernels_of(np.where(foreign, names.new(max(1, size))[:size], rng.choice(own, size)), rng)


def make_pass(seed: int) -> Made:
    """Return one forward pass, or one whole iteration: the input is copied first, the result is read last."""
    rng, names = np.random.default_rng([seed, 7]), Names()
    trains = seed % 2 == 1
    job = Job(
        layers=between(rng, 4, 100),
        forward=between(rng, 2, 40),
        backward=between(rng, 3, 60) * trains,
        pre=between(rng, 1, 10),
        head=between(rng, 1, 10),
        optimizer_repeats=int(rng.integers(1, 12)) * trains,
    )
    model = draw_model(job, names.new(job.alphabet), names, rng)
    shown = join([model.ahead, model.back, model.update])
    begins = layer_starts(model)
    shown["gap_us"][begins] += at_times(rng, 0.3, between(rng, 20, 400))
    streamed = begins[:, None] + np.arange(int(rng.integers(1, 6)))  # weights that are copied layer by layer
    fed = np.append(0, streamed[: len(begins) * int(rng.random() < 0.1)])
    return timed(shown, names, seed, fed=np.minimum(fed, len(shown) - 1), read=np.array([len(shown)]))


def layer_starts(model: SimulatedModel) -> Ints:
    """Return where the layers of a pass begin, forward and backward."""
    ahead = len(model.pre) + np.cumsum([0, *map(len, model.forward)])
    back = len(model.ahead) + np.cumsum([0, *map(len, model.backward)])
    return np.concatenate([ahead[:-1], back[:-1]])


def timed(shown: Kernels, names: Names, seed: int, fed: Ints, read: Ints) -> Made:
    """Return the kernels with their times, those that follow a copy from the host, and those that follow a wait."""
    size, rng = len(shown), np.random.default_rng([seed, 8])
    return Made(
        symbols=shown["symbol"].copy(),
        truths=(),
        coarse=np.array(names.coarse),
        gaps=jittered(shown["gap_us"], Job(seed=seed)),
        durations=shown["duration_us"] * rng.lognormal(0.0, SPREAD, size),
        copies=marked(fed, size),
        syncs=marked(read, size),
    )


def marked(places: Ints, size: int) -> Bools:
    """Return which of this many kernels are at one of the places."""
    marks: Bools = np.zeros(size + 1, bool)
    marks[places] = True
    return marks[:size]
