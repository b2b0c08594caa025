"""Random jobs in the order of their kernels: evaluation, growth, shape buckets, accumulation, and several together.

The kinds and their ranges are those at which the miner failed on jobs that someone else had drawn. Seeds are split:
`fit` may be examined while the miner is changed, `look` now and then, and of `sealed` only the summary is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from benchmarks.accuracy.emitted import Book, Emission, Rng, Shape, backward, draw_shape, forward, update, zeroing
from benchmarks.accuracy.looks import Case
from benchmarks.accuracy.truth import Made, Truth

BLOCKS = {"fit": range(5000, 5144), "look": range(7000, 7144), "sealed": range(8000, 8144)}
LOOKS = ("kernels", "names")  # the order alone, and with the names that are an optimizer's
SURE = 0.8
MOST_KERNELS = 60_000  # of a job


@dataclass(frozen=True)
class Program:
    """How a job runs; `…_every` in iterations, 0 is never, shares are of iterations."""

    layers: int
    iterations: int
    inserted: float = 0.0
    deleted: float = 0.0
    eval_every: int = 0
    eval_passes: int = 10
    growth_every: int = 0
    buckets: int = 1
    micro: int = 1
    checkpoint_every: int = 0


def layers(rng: Rng) -> int:
    """Return a number of layers from 6 to 48."""
    return int(rng.choice([6, 8, 12, 16, 24, 32, 48]))


def plain(rng: Rng) -> Program:
    """Return a job of equal iterations, a few of them edited."""
    return Program(layers(rng), int(rng.integers(12, 60)), inserted=float(rng.uniform(0, 0.2)))


def evaluation(rng: Rng) -> Program:
    """Return a job that evaluates its model now and then."""
    every = int(rng.choice([5, 10, 10, 10, 20]))
    passes = int(rng.choice([3, 5, 10, 10, 10, 20]))
    noise = float(rng.choice([0, 0.05, 0.1, 0.2]))
    return Program(layers(rng), int(rng.integers(40, 76)), inserted=noise, eval_every=every, eval_passes=passes)


def evaluation_edited(rng: Rng) -> Program:
    """Return the same with kernels missing as well."""
    return replace(evaluation(rng), inserted=0.1, deleted=0.1, checkpoint_every=int(rng.choice([0, 15])))


def growth(rng: Rng) -> Program:
    """Return a job that grows by a kernel now and then."""
    every = int(rng.choice([3, 5, 10, 20]))
    return Program(layers(rng), int(rng.integers(30, 76)), growth_every=every, buckets=int(rng.choice([1, 3, 3])))


def buckets(rng: Rng) -> Program:
    """Return a job whose products run in several shapes."""
    return Program(layers(rng), int(rng.integers(30, 76)), buckets=int(rng.choice([3, 5, 8])), inserted=0.1)


def few_layers(rng: Rng) -> Program:
    """Return a job of two layers, at times with kernels missing or more."""
    return Program(2, int(rng.integers(30, 120)), deleted=0.1, inserted=float(rng.choice([0, 0.1])))


def accumulation(rng: Rng) -> Program:
    """Return a job that updates after several micro-batches."""
    micro = int(rng.choice([2, 4, 4, 8]))
    return Program(layers(rng), int(rng.integers(12, 40)), micro=micro, inserted=float(rng.choice([0, 0.1])))


def all_together(rng: Rng) -> Program:
    """Return accumulation with shape buckets and an evaluation."""
    return Program(
        layers(rng), int(rng.integers(50, 80)), eval_every=int(rng.choice([10, 25])), buckets=3, micro=4, inserted=0.05
    )


KINDS: tuple[Callable[[Rng], Program], ...] = (
    plain,
    evaluation,
    evaluation_edited,
    growth,
    buckets,
    few_layers,
    accumulation,
    all_together,
)


def cases(block: str) -> Iterator[Case]:
    """Yield the jobs of a block of seeds, the kinds in turn."""
    for seed in BLOCKS[block]:
        kind = KINDS[seed % len(KINDS)].__name__.replace("_", " ")
        yield Case(block, kind, seed, partial(make_program, seed), str(draw(seed)[0]) if block != "sealed" else "")


def draw(seed: int) -> tuple[Program, Shape]:
    """Return the job of that seed and its model."""
    rng = np.random.default_rng([seed, 16])
    program = KINDS[seed % len(KINDS)](rng)
    return program, draw_shape(rng, program.layers)


def make_program(seed: int) -> Made:
    """Return the kernels of the job of that seed, and where its iterations are."""
    program, shape = draw(seed)
    course = Course(program, shape, np.random.default_rng([seed, 17]))
    return course.run()


class Course:
    """A program as it runs: names in the order of their launch, and rows of start, end and undisturbed length."""

    def __init__(self, program: Program, shape: Shape, rng: Rng) -> None:
        self.program, self.shape, self.rng = program, shape, rng
        self.names: Emission = []
        self.rows: list[tuple[int, int, int]] = []
        self.asides: list[tuple[int, int, int]] = []
        self.trained = [
            *zeroing(shape),
            *(forward(shape, training=True) + backward(shape)) * program.micro,
            *update(shape),
        ]
        self.tested = forward(shape, training=bool(rng.random() < 0.5))
        self.grown = str(rng.choice(["add", "mul", "stack_history"]))
        self.place = int(rng.integers(1, len(self.trained)))

    def run(self) -> Made:
        """Return all of it."""
        self.names += ["fill_normal"] * int(self.rng.integers(0, 400))
        for number in range(min(self.program.iterations, max(9, MOST_KERNELS // len(self.trained)))):
            self.train(number)
            self.do_more(number + 1)
        book = Book()
        symbols = book.read(self.names)
        grows = self.program.growth_every > 0
        asides = (truth_of(self.asides, grows=False),) if self.asides else ()
        return Made(symbols, (truth_of(self.rows, grows),), book.coarse, asides, optimizer=book.optimizer)

    def train(self, number: int) -> None:
        """Append one iteration."""
        more = number // self.program.growth_every if self.program.growth_every else 0
        kernels = self.trained[: self.place] + [self.grown] * more + self.trained[self.place :]
        self.append(self.rows, kernels)

    def do_more(self, done: int) -> None:
        """Append what follows this many iterations: an evaluation, a checkpoint."""
        if self.program.eval_every and done % self.program.eval_every == 0:
            for _ in range(self.program.eval_passes):
                self.append(self.asides, self.tested)
        if self.program.checkpoint_every and done % self.program.checkpoint_every == 0:
            self.names += ["copy", "checksum"] * 12

    def append(self, rows: list[tuple[int, int, int]], kernels: Emission) -> None:
        """Append a pass, edited now and then, in one of the shapes."""
        made = self.edited(self.shaped(kernels))
        rows.append((len(self.names), len(self.names) + len(made), len(kernels)))
        self.names += made

    def shaped(self, kernels: Emission) -> Emission:
        """Return the kernels in a random shape: what has a width runs as a variant for it."""
        which = int(self.rng.integers(self.program.buckets))
        return [name.replace(">", f",b{which}>") if which else name for name in kernels]

    def edited(self, kernels: Emission) -> Emission:
        """Return the kernels, in a share of cases with some more or fewer."""
        if self.rng.random() < self.program.inserted:
            place = int(self.rng.integers(1, len(kernels)))
            more = [str(name) for name in self.rng.choice(["copy", "isfinite", "log_value", "fill_zero"], 8)]
            kernels = kernels[:place] + more[: int(self.rng.integers(1, 9))] + kernels[place:]
        if self.rng.random() < self.program.deleted:
            place = int(self.rng.integers(1, len(kernels) - 4))
            kernels = kernels[:place] + kernels[place + int(self.rng.integers(1, 4)) :]
        return kernels


def truth_of(rows: list[tuple[int, int, int]], grows: bool) -> Truth:
    """Return the truth of passes that were all captured whole."""
    starts, ends, nominal = np.array(rows, np.int64).T
    period = int(np.sort(nominal)[(len(nominal) - 1) // 2])
    extremes = (int(nominal.min()), int(nominal.max())) if grows else (period, period)
    return Truth(starts, ends, np.ones(len(starts), bool), period, *extremes)
