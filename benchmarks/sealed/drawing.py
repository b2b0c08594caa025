"""The drawing of jobs: model, mistakes and their strength, length, noise, what was recorded and how it is named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from random import Random
from typing import TypeVar

from benchmarks.cases.mixtures import RULES, Mistakes
from benchmarks.cases.planted import PLANTED
from benchmarks.cases.played import Job, NoisyMachine
from benchmarks.sealed.truth import Truth, find_truth
from deepprof.simulation.machine import Machine

__all__ = ["KINDS", "MISSING", "Drawn", "draw"]

T = TypeVar("T")

KINDS = {"healthy": 2, "weak mistake": 1, "one mistake": 5, "two mistakes": 3}  # with their weights
MISSING = {"nothing": 5, "operators": 1, "ranges": 1, "launch records": 1, "the host": 1}
FLAVOURS = ("pytorch", "pytorch", "jax", "tensorflow", "native")
STRONG = {  # shares of the computing time, well above what the rules ask for
    "data": (0.3, 1.2),
    "logs": (0.6, 1.2),
    "copies": (0.35, 0.9),
    "reads": (0.4, 0.8),
    "memory": (0.2, 0.7),
    "wires": (0.6, 1.2),
    "moves": (0.35, 0.9),
    "launches": (0.7, 1.5),
    "often": (0.3, 1.0),
    "rarely": (0.4, 0.9),
    "growth": (0.5, 1.2),
    "slower": (0.15, 0.35),
    "floats": (0.5, 1.5),
    "scores": (0.3, 0.9),
    "chains": (0.6, 1.5),
    "turns": (0.3, 0.9),
    **dict.fromkeys(PLANTED, (0.35, 0.9)),
}
WEAK = ("data", "logs", "copies", "memory", "wires", "moves")  # what can be so small that it is not worth a word
WEAKNESS = 0.02
SERIES = ("rarely", "growth", "slower")  # what needs many iterations
NAMED = ("floats", "scores", "chains", "turns", *PLANTED)  # what only the names of PyTorch's kernels show
WAITING = tuple(name for name in STRONG if name not in NAMED)
FAMILIES = {WAITING: 13, NAMED: 4}  # with their weights: other frameworks' jobs have mistakes of waiting alone
APART = (  # what cannot be together: there is one loader, and one device
    *({"data", "often"}, {"data", "rarely"}),
    *({"older", "doubles"}, {"floats", "doubles"}),
)
ITERATIONS, LONG = (12, 26), (24, 40)
ATTEMPTS = 30


@dataclass(frozen=True)
class Drawn:
    """One job: its program, how it was recorded, and the truth about it.

    `cut` are the shares of the capture's time between which records were kept, `bend` how far time is bent.
    """

    number: int
    kind: str
    flavour: str
    marked: bool
    missing: str
    mistakes: Mistakes
    job: Job
    cut: tuple[float, float]
    bend: float
    truth: Truth


def draw(seed: str, number: int) -> Drawn:
    """Return job `number` of a block; one in the grey zone, or without attention to spoil, is drawn again."""
    for attempt in range(ATTEMPTS):
        drawn = draw_once(Random(f"{seed} {number} {attempt}"), f"{seed} {number} {attempt}", number)
        if drawn.truth.clear and all(drawn.truth.shares.get(name, 1.0) for name in NAMED):
            return drawn
    raise RuntimeError(f"job {number} of block {seed} stays in the grey zone after {ATTEMPTS} attempts")


def draw_once(random: Random, seed: str, number: int) -> Drawn:
    """Return a job, whose loss may be in the grey zone."""
    kind = pick(random, KINDS)
    mistakes, planted = draw_mistakes(random, kind)
    machine: type[Machine] = NoisyMachine if random.random() < 0.25 else Machine
    iterations = random.randint(*(LONG if set(planted) & set(SERIES) else ITERATIONS))
    flavour, missing = random.choice(FLAVOURS), pick(random, MISSING)
    flavour = "pytorch" if set(planted) & set(NAMED) else flavour
    cut = (random.uniform(0, 0.1), random.uniform(0.9, 1)) if random.random() < 0.4 else (0.0, 1.0)
    job = Job(mistakes.plan, iterations, seed, machine)
    without = {name: replace(job, plan=mistakes.without(name).plan) for name in planted}
    bend = random.choice((0.0, 0.0, 0.1, 0.2))
    bare = replace(job, plan=reduce(Mistakes.without, planted, mistakes).plan)
    truth = find_truth(job, without, bare, {name: RULES[name] for name in planted}, missing)
    return Drawn(number, kind, flavour, random.random() < 0.4, missing, mistakes, job, cut, bend, truth)


def draw_mistakes(random: Random, kind: str) -> tuple[Mistakes, tuple[str, ...]]:
    """Return the mistakes of a job of that kind, and which they are."""
    if kind == "healthy":
        return Mistakes(), ()
    if kind == "weak mistake":
        name = random.choice(WEAK)
        return Mistakes(**{name: random.uniform(WEAKNESS / 2, WEAKNESS)}), (name,)
    first, *others = names = draw_names(random, 2 if kind == "two mistakes" else 1)
    shares = {first: random.uniform(*STRONG[first])}
    for other in others:
        shares[other] = random.uniform(0.25, 1) * random.uniform(*STRONG[other])
    return Mistakes(**shares), tuple(names)


def draw_names(random: Random, many: int) -> list[str]:
    """Return this many mistakes, each of a family that is drawn first; one alone where two cannot be together."""
    names: list[str] = []
    while len(names) < many:
        name = random.choice(pick(random, FAMILIES))
        names += [] if name in names else [name]
    return names[:1] if any(pair <= set(names) for pair in APART) else names


def pick(random: Random, weights: Mapping[T, int]) -> T:
    """Return one of the names, the heavier ones more often."""
    return random.choices(list(weights), list(weights.values()))[0]
