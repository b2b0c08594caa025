"""Sequences without iterations: words of mathematics, chance, solvers, and what a job does only once or twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from benchmarks.accuracy.jobs import Job
from benchmarks.accuracy.kernels import Ints, Names, draw_block
from benchmarks.accuracy.layout import make_job
from benchmarks.accuracy.looks import Case
from benchmarks.accuracy.models import draw_model
from benchmarks.accuracy.truth import Made, without_loop

Rng = np.random.Generator


def random(rng: Rng, alphabet: int) -> Ints:
    return rng.integers(0, alphabet, 8000)


def markov(rng: Rng, states: int, density: float) -> Ints:
    """Return a walk over states of which each is followed by few others."""
    chances = rng.dirichlet(np.full(states, density), states).cumsum(axis=1)
    walk = [0]
    for draw in rng.random(8000):
        walk.append(min(int(np.searchsorted(chances[walk[-1]], draw)), states - 1))
    return np.array(walk)


def all_equal(rng: Rng) -> Ints:
    return np.full(int(rng.integers(1000, 8000)), 3)


def morphic(rng: Rng, images: dict[int, list[int]]) -> Ints:
    """Return the fixed point of a substitution on words, from a random place of it on."""
    word = [0]
    while len(word) < 9000:
        word = [letter for one in word for letter in images[one]]
    first = int(rng.integers(0, 1000))
    return np.array(word[first : first + 8000])


def ramp(rng: Rng) -> Ints:
    return np.sort(rng.integers(0, 500, 6000))


def taking_turns(rng: Rng) -> Ints:
    return np.tile([0, 1], int(rng.integers(1000, 4000)))


def solver(rng: Rng, size: int) -> Ints:
    """Return a solver: after its setup the same few kernels thousands of times."""
    body = rng.integers(0, size, size)
    return np.concatenate([rng.integers(size, size + 9, 12), np.tile(body, int(rng.integers(1000, 4000))), [size + 9]])


def nested_solver(rng: Rng) -> Ints:
    """Return a solver whose inner iterations vary in number."""
    outer, inner = np.arange(9), rng.integers(9, 14, int(rng.integers(3, 7)))
    runs = rng.integers(4, 60, 120).tolist()
    return np.concatenate([part for run in runs for part in (outer[:5], np.tile(inner, run), outer[5:])])


def stencil(rng: Rng) -> Ints:
    """Return time integration: two or three kernels in turn, output now and then."""
    body = np.arange(int(rng.integers(2, 4)))
    every = rng.integers(40, 60, 60).tolist()
    return np.concatenate([part for run in every for part in (np.tile(body, run), [7, 8])])


def library_mixture(rng: Rng) -> Ints:
    """Return transforms and sorts of random sizes: each kind repeats its own passes."""
    calls = []
    for size in rng.integers(2, 18, 700).tolist():
        passes = [[0, *[1] * (size % 3 + 1), 2], [3, 4, 5] * size, [6, 7, *[8, 9] * (size // 2), 10]]
        calls += passes[int(rng.integers(3))]
    return np.array(calls)


def single_pass(rng: Rng, layers: int, size: int, experts: int = 0) -> Ints:
    """Return one forward pass: an embedding, equal layers, a head."""
    names = Names()
    shared = names.new(20)
    job = Job(layers=layers, forward=size, backward=0, experts=experts, expert=4, optimizer_repeats=0)
    return draw_model(job, shared, names, rng).ahead["symbol"].copy()


def few_iterations(rng: Rng, iterations: int, layers: int, noise: float) -> Ints:
    """Return one or two iterations, which is too few to know."""
    seed = int(rng.integers(0, 2**31))
    job = Job(seed=seed, iterations=iterations, layers=layers, insertions=noise, prologue=50, epilogue=30)
    return make_job(job).symbols


def shuffled_blocks(rng: Rng, kinds: int) -> Ints:
    """Return blocks like layers in an order without rule."""
    names = Names()
    shared = names.new(15)
    blocks = [draw_block(int(rng.integers(5, 60)), shared, 0.6, names, rng)["symbol"] for _ in range(kinds)]
    return np.concatenate([blocks[i] for i in rng.integers(0, kinds, 300).tolist()])


def block_walk(rng: Rng, kinds: int) -> Ints:
    """Return blocks each followed by itself or a neighbour."""
    names = Names()
    shared = names.new(15)
    blocks = [draw_block(int(rng.integers(5, 60)), shared, 0.6, names, rng)["symbol"] for _ in range(kinds)]
    walk = np.cumsum(rng.integers(-1, 2, 300)) % kinds
    return np.concatenate([blocks[i] for i in walk.tolist()])


def ragged_blocks(rng: Rng) -> Ints:
    """Return blocks whose lengths are log-normal, all cut from one long word."""
    word = rng.integers(0, 80, 2000)
    sizes = np.clip(rng.lognormal(4, 0.7, 150), 5, 900).astype(int)
    starts = rng.integers(0, 1000, 150)
    return np.concatenate([word[a : a + size] for a, size in zip(starts.tolist(), sizes.tolist(), strict=True)])


FIBONACCI = {0: [0, 1], 1: [0]}
THUE_MORSE = {0: [0, 1], 1: [1, 0]}
DOUBLING = {0: [0, 1], 1: [0, 0]}

KINDS: dict[str, tuple[Callable[[Rng], Ints], ...]] = {
    "random": tuple(partial(random, alphabet=a) for a in (2, 3, 8, 40, 200, 2000)),
    "Markov chain": tuple(partial(markov, states=s, density=d) for s in (4, 8, 30, 100, 300) for d in (0.02, 0.1)),
    "all equal": (all_equal,) * 2,
    "two kernels in turn": (taking_turns,) * 2,
    "Fibonacci word": (partial(morphic, images=FIBONACCI),) * 2,
    "Thue-Morse word": (partial(morphic, images=THUE_MORSE),) * 2,
    "period-doubling word": (partial(morphic, images=DOUBLING),) * 2,
    "sorted": (ramp,) * 2,
    "solver": tuple(partial(solver, size=s) for s in range(5, 13)),
    "solver within a solver": (nested_solver,) * 5,
    "stencil": (stencil,) * 3,
    "transforms and sorts": (library_mixture,) * 4,
    "one forward pass": tuple(
        partial(single_pass, layers=n, size=s) for n in (12, 24, 32, 48, 80) for s in (6, 14, 30)
    ),
    "one forward pass, experts": tuple(
        partial(single_pass, layers=n, size=20, experts=e) for n in (12, 24, 48, 60) for e in (20, 40, 70)
    ),
    "one iteration": tuple(partial(few_iterations, iterations=1, layers=n, noise=0.0) for n in (6, 12, 32, 60)),
    "two iterations": tuple(
        partial(few_iterations, iterations=2, layers=n, noise=x) for n in (6, 24, 60) for x in (0.0, 1.0)
    ),
    "blocks in random order": tuple(partial(shuffled_blocks, kinds=k) for k in (3, 5, 8, 20)),
    "walk over blocks": tuple(partial(block_walk, kinds=k) for k in (4, 6, 10)),
    "ragged parts of one word": (ragged_blocks,) * 3,
}


def cases() -> Iterator[Case]:
    """Yield every sequence; its number is its seed."""
    for kind, makers in KINDS.items():
        for number, make in enumerate(makers):
            yield Case("negatives", kind, number, partial(make_negative, make, number))


def make_negative(make: Callable[[Rng], Ints], number: int) -> Made:
    """Return one sequence, the same for the same number."""
    return without_loop(np.asarray(make(np.random.default_rng([number, 4])), np.int64))
