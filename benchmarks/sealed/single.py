"""Single passes: one forward pass or one training step, in which layers repeat and no iteration does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from benchmarks.cases.defects import UPDATE
from benchmarks.cases.disturbances import drop_operators
from benchmarks.cases.dressing import dress, mark_step
from benchmarks.cases.played import read_machine
from benchmarks.cases.simulated import strip
from deepprof.collectors.trace import Trace
from deepprof.simulation.document import START_NS
from deepprof.simulation.kernels import Launch
from deepprof.simulation.machine import Machine
from deepprof.simulation.models import SimulatedModel, deepen_model, draw_model
from deepprof.simulation.steps import MAIN_STREAM, Close, Copy, Open, Step
from deepprof.simulation.training import read_value

__all__ = ["PASSES", "Pass", "draw_pass", "record_pass"]

PASSES = ("forward pass", "training step", "TensorFlow step")
VARIABLES = (1, 6)  # of a layer, updated as soon as their gradient is there
MOST_KERNELS = 1_200


@dataclass(frozen=True)
class Pass:
    """One pass: `model` goes through it once; `marked` reports it in the trace, as its framework would."""

    kind: str
    flavour: str
    model: SimulatedModel
    marked: bool
    host: bool
    variables: int
    seed: str


def draw_pass(seed: str, number: int) -> Pass:
    """Return pass `number` of a block. A forward pass without the host's side is no case: it could be a loop."""
    random = Random(f"{seed} pass {number}")
    kind = PASSES[number % len(PASSES)]
    model = deepen_model(draw_model(random, (0.1, 1.5)), random.choice((1, 1, 2, 3)))
    flavour = "tensorflow" if kind == "TensorFlow step" else random.choice(("pytorch", "jax", "native"))
    host = kind == "forward pass" or random.random() < 0.7
    variables = random.randint(*VARIABLES)
    return Pass(kind, flavour, model, random.random() < 0.5, host, variables, f"{seed} pass {number}")


def record_pass(drawn: Pass) -> Trace:
    """Return what was recorded of the pass."""
    machine = Machine(Random(drawn.seed), START_NS)
    for step in steps_of(drawn):
        machine.play(step)
    trace = dress(read_machine(machine), drawn.flavour)
    kept = trace if drawn.host else strip(trace)
    if drawn.kind != "TensorFlow step":
        return kept
    return mark_step(kept) if drawn.marked else drop_operators(kept)


def steps_of(drawn: Pass) -> Iterator[Step]:
    """Yield what the host does."""
    marked = drawn.marked and drawn.kind != "TensorFlow step"
    yield from (Open("ProfilerStep#3"),) * marked
    yield Copy("HtoD", drawn.model.batch_nbytes, pinned=True, stream=MAIN_STREAM)
    yield from drawn.model.forward
    if drawn.kind != "forward pass":
        yield from backward_of(drawn)
    yield from read_value()
    yield from (Close(),) * marked


def backward_of(drawn: Pass) -> Iterator[Step]:
    """Yield the backward pass and the update; TensorFlow's updates are within the backward pass."""
    model, inside = drawn.model, drawn.kind == "TensorFlow step"
    yield from model.head_backward
    for block in model.blocks_backward:
        yield from block
        yield from (Launch("ApplyAdam", UPDATE, 4_000),) * (drawn.variables * inside)
    yield from model.stem_backward
    yield from () if inside else model.optimizer
