"""A program laid out in time: iteration after iteration with noise, evaluations between them, cut at both ends."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from benchmarks.accuracy.jobs import Job
from benchmarks.accuracy.kernels import NONE, Floats, Ints, Kernels, Names, join, kernels_of
from benchmarks.accuracy.models import Program, make_program
from benchmarks.accuracy.noise import Noise, make_noise
from benchmarks.accuracy.truth import Cycle, Made, Truth

JITTER = 0.3  # spread of the logarithm of every pause
HICCUPS, HICCUP_US = 0.001, 200.0  # share of kernels before which the host was held up, and for how long


@dataclass
class Tape:
    """The kernels laid out so far, and where each iteration is: rows of loop, start, end, and length without noise.

    `asides` are such rows as well, of evaluation passes.
    """

    parts: list[Kernels] = field(default_factory=list)
    rows: list[tuple[int, int, int, int]] = field(default_factory=list)
    asides: list[tuple[int, int, int, int]] = field(default_factory=list)
    length: int = 0

    def add(self, kernels: Kernels) -> None:
        """Append what belongs to no iteration."""
        self.parts.append(kernels)
        self.length += len(kernels)

    def add_iteration(self, loop: int, kernels: Kernels, nominal: int) -> None:
        """Append an iteration."""
        self.rows.append((loop, self.length, self.length + len(kernels), nominal))
        self.add(kernels)

    def add_evaluation(self, kernels: Kernels, nominal: int) -> None:
        """Append one pass of an evaluation."""
        self.asides.append((0, self.length, self.length + len(kernels), nominal))
        self.add(kernels)


def make_job(job: Job) -> Made:
    """Return the job's sequence and its truth. Model, course and times have random their own numbers."""
    names = Names()
    program = make_program(job, names, np.random.default_rng([job.seed, 0]))
    return lay_out(job, program, names)


def lay_out(job: Job, program: Program, names: Names) -> Made:
    """Return what the capture of such a program shows."""
    rng = np.random.default_rng([job.seed, 1])
    course = Course(job, program, make_noise(job, names, join(program.loops)["symbol"], rng))
    course.tape.add(around(job.prologue, course.noise))
    for number, loop in enumerate(order(job, len(program.loops), rng)):
        course.lay(number, loop)
    course.tape.add(around(job.epilogue, course.noise))
    return cut(course.tape, job, program, names)


@dataclass(frozen=True)
class Course:
    """A program as it runs, and the tape that takes it down."""

    job: Job
    program: Program
    noise: Noise
    tape: Tape = field(default_factory=Tape)

    def lay(self, number: int, loop: int) -> None:
        """Append one iteration and what follows it."""
        kernels = self.extended(number, loop)
        self.tape.add_iteration(loop, self.noise.edited(kernels, number), len(kernels))
        if due(self.job.eval_every, number):
            for _ in range(self.job.eval_passes):
                evaluation = self.program.evaluation
                self.tape.add_evaluation(self.noise.edited(evaluation, self.job.iterations), len(evaluation))
        if due(self.job.checkpoint_every, number):
            self.tape.add(self.program.checkpoint)

    def extended(self, number: int, loop: int) -> Kernels:
        """Return the iteration with what its number adds: statistics, and all that it grew by."""
        kernels, (statistics, growth) = self.program.loops[loop], self.program.places[loop]
        taken = self.program.statistics if due(self.job.statistics_every, number) else NONE
        grown = np.repeat(self.program.grown, number // self.job.growth_every if self.job.growth_every else 0)
        places = [growth] * len(grown) + [statistics] * len(taken)
        return np.insert(kernels, places, join([grown, taken])) if places else kernels


def due(every: int, number: int) -> bool:
    """Return whether it is the last iteration of this many."""
    return every > 0 and number % every == every - 1


def order(job: Job, loops: int, rng: np.random.Generator) -> list[int]:
    """Return the loop of every iteration: the loops take turns for long sections of different lengths."""
    share = rng.uniform(0.6, 1.4, job.stretches)
    ends = np.round(share.cumsum() / share.sum() * job.iterations).astype(int)
    stretch = np.searchsorted(ends, np.arange(job.iterations), side="right")
    return [s % loops for s in stretch.tolist()]


def around(size: int, noise: Noise) -> Kernels:
    """Return what runs before and after a loop: runs of one kernel, as when weights are filled or read back."""
    pool = np.concatenate([noise.foreign, noise.names.new(10), noise.bucketed])
    runs = noise.rng.geometric(0.4, size)
    return kernels_of(np.repeat(noise.rng.choice(pool, size), runs)[:size], noise.rng)


def cut(tape: Tape, job: Job, program: Program, names: Names) -> Made:
    """Return the part of the tape that was captured."""
    rows, asides = np.array(tape.rows, np.int64), np.array(tape.asides, np.int64)
    (_, start, end, _), (_, last, last_end, _) = tape.rows[0], tape.rows[-1]
    first = start + missed(job.cut_start, end - start) if job.cut_start else 0
    stop = last_end - missed(job.cut_end, last_end - last) if job.cut_end else tape.length
    shown = join(tape.parts)[first:stop]
    loops = [rows[rows[:, 0] == loop] for loop in np.unique(rows[:, 0])]
    return Made(
        symbols=shown["symbol"].copy(),
        truths=tuple(truth_of(loop, first, stop, grows=job.growth_every > 0) for loop in loops),
        coarse=np.array(names.coarse),
        asides=(truth_of(asides, first, stop),) if len(asides) else (),
        gaps=jittered(shown["gap_us"], job),
        durations=shown["duration_us"].copy(),
        optimizer=np.isin(np.arange(len(names.coarse)), list(names.optimizer)),
        cycles=cycles_of(job, program),
        micro=program.micro,
    )


def missed(share: float, size: int) -> int:
    """Return how many kernels of an iteration are cut off: one at least, and not all."""
    return min(size - 1, max(1, round(share * size)))


def truth_of(rows: Ints, first: int, stop: int, grows: bool = False) -> Truth:
    """Return the truth of one loop, of which the kernels from `first` to `stop` were captured."""
    _, starts, ends, nominal = rows.T
    period = int(np.sort(nominal)[(len(nominal) - 1) // 2])
    extremes = (int(nominal.min()), int(nominal.max())) if grows else (period, period)
    shown = starts < stop
    whole = (starts >= first) & (ends <= stop)
    return Truth(starts[shown] - first, ends[shown] - first, whole[shown], period, *extremes)


def jittered(gaps: Floats, job: Job) -> Floats:
    """Return the pauses as one capture shows them: around the usual ones, with a hiccup now and then."""
    rng = np.random.default_rng([job.seed, 2])
    hiccups = np.where(rng.random(len(gaps)) < HICCUPS, rng.exponential(HICCUP_US, len(gaps)), 0.0)
    return gaps * rng.lognormal(0.0, JITTER, len(gaps)) + hiccups


def cycles_of(job: Job, program: Program) -> tuple[Cycle, ...]:
    """Return what comes back every this many iterations."""
    passes = job.eval_passes * len(program.evaluation)
    known = [
        Cycle(job.eval_every, passes, "evaluation"),
        Cycle(job.checkpoint_every, len(program.checkpoint), "checkpoint"),
        Cycle(job.statistics_every, len(program.statistics), "statistics"),
        Cycle(job.growth_every, 1, "growth"),
    ]
    return tuple(cycle for cycle in known if cycle.every)
