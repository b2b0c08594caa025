"""From knobs to programs: the kernels of a model, and of the iterations, evaluations and checkpoints made of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from benchmarks.accuracy.jobs import Job
from benchmarks.accuracy.kernels import NONE, Ints, Kernels, Names, draw_block, join, with_gap


@dataclass(frozen=True)
class SimulatedModel:
    """A model's blocks; `backward` contains those of the layers that are trained, in the order in which they run."""

    pre: Kernels
    forward: tuple[Kernels, ...]
    head: Kernels
    backward: tuple[Kernels, ...]
    update: Kernels

    @property
    def ahead(self) -> Kernels:
        """The forward pass."""
        return join([self.pre, *self.forward, self.head])

    @property
    def back(self) -> Kernels:
        """The backward pass."""
        return join(self.backward)


@dataclass(frozen=True)
class Program:
    """What a job runs: an iteration for every loop, and what happens now and then.

    `places` states for every loop where statistics are taken, and where its graph grows.
    """

    loops: tuple[Kernels, ...]
    places: tuple[tuple[int, int], ...]
    evaluation: Kernels
    checkpoint: Kernels
    statistics: Kernels
    grown: Kernels
    micro: int | None = None


def make_program(job: Job, names: Names, rng: np.random.Generator) -> Program:
    """Return the program of a job."""
    shared = names.new(job.alphabet)
    model = draw_model(job, shared, names, rng)
    loops = tuple(iteration for iteration in iterations(job, model, shared, names, rng))
    return Program(
        loops=loops,
        places=tuple((place_before_update(job, model, loop), int(rng.integers(1, len(loop)))) for loop in loops),
        evaluation=with_gap(join([model.ahead, draw_block(4, shared, 0.8, names, rng)]), 0, job.start_gap_us),
        checkpoint=draw_block(job.checkpoint, shared, 0.9, names, rng),
        statistics=draw_block(job.statistics, shared, 0.7, names, rng),
        grown=draw_block(1, shared, 1.0, names, rng),
        micro=len(model.ahead) + len(model.back) if job.micro > 1 else None,
    )


def iterations(job: Job, model: SimulatedModel, shared: Ints, names: Names, rng: np.random.Generator) -> list[Kernels]:
    """Return the iteration of each of the job's loops."""
    if job.critic:
        return [paused(job, adversarial(job, model, draw_model(job, shared, names, rng)), rng)]
    models = [model]
    if job.stretches > 1:
        other = replace(job, layers=max(1, round(job.layers * rng.uniform(0.4, 1.6))))
        models.append(partly_frozen(model) if job.similar else draw_model(other, shared, names, rng))
    return [paused(job, supervised(job, m), rng) for m in models]


def supervised(job: Job, model: SimulatedModel) -> Kernels:
    """Return forward and backward passes of all micro-batches, and the optimizer's update."""
    micro = join([model.ahead, model.back])
    later = with_gap(micro, 0, job.micro_gap_us)
    return join([micro, *[later] * (job.micro - 1), model.update])


def adversarial(job: Job, generator: SimulatedModel, critic: SimulatedModel) -> Kernels:
    """Return some passes that train the critic on what the generator makes, and one that trains the generator."""
    criticism = join([generator.ahead, critic.ahead, critic.back, critic.update])
    generation = join([generator.ahead, critic.ahead, critic.back, generator.back, generator.update])
    return join([*[criticism] * job.critic, generation])


def partly_frozen(model: SimulatedModel) -> SimulatedModel:
    """Return the same model with the first half of its layers frozen: as much forward, half as much backward."""
    return replace(model, backward=model.backward[: (len(model.backward) + 1) // 2])


def paused(job: Job, iteration: Kernels, rng: np.random.Generator) -> Kernels:
    """Return the iteration with the host's pauses."""
    other = int(rng.integers(1, len(iteration)))
    return with_gap(with_gap(iteration, 0, job.start_gap_us), other, job.other_gap_us)


def place_before_update(job: Job, model: SimulatedModel, iteration: Kernels) -> int:
    """Return where statistics of the gradients are taken."""
    return max(1, len(iteration) - len(model.update))


def draw_model(job: Job, shared: Ints, names: Names, rng: np.random.Generator) -> SimulatedModel:
    """Return the blocks of one model."""

    def block(size: int) -> Kernels:
        return draw_block(size, shared, job.own, names, rng)

    ahead = [layer(block(job.forward), block(job.expert), job.experts) for _ in range(job.stages)]
    back = [layer(block(job.backward), block(job.expert), job.experts) for _ in range(job.stages)]
    stage = np.arange(job.layers) * job.stages // max(1, job.layers)
    update = block(job.optimizer if job.optimizer_repeats else 0)
    names.optimizer.update(set(update["symbol"].tolist()) - set(shared.tolist()))
    return SimulatedModel(
        pre=block(job.pre),
        forward=tuple(ahead[s] for s in stage.tolist()),
        head=block(job.head),
        backward=tuple(back[s] for s in stage[::-1].tolist()) if job.backward else (),
        update=join([update] * job.optimizer_repeats),
    )


def layer(block: Kernels, expert: Kernels, experts: int) -> Kernels:
    """Return a layer: its block, with as many runs of the experts' block in its middle."""
    if not experts or not len(block):
        return block if len(block) else NONE
    middle = len(block) // 2
    return join([block[:middle], *[expert] * experts, block[middle:]])
