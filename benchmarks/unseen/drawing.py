"""The drawing of recordings from a seed: pairs of twins, of which one is healthy and the other one is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from benchmarks.unseen import blocking, bursts, looping, passing, several
from benchmarks.unseen.playing import play
from benchmarks.unseen.recording import write
from benchmarks.unseen.sketch import Sketch
from benchmarks.unseen.truth import Truth, find_truth
from benchmarks.unseen.vocabulary import NOTHING
from deepprof.collectors.trace import Trace

__all__ = ["FAMILIES", "Drawn", "draw", "family_of", "record"]

Draw = Callable[[Random, bool], Sketch]
FAMILIES: dict[str, tuple[Draw, ...]] = {
    "without a loop": (
        *(passing.request, passing.marked_step, passing.plain_pass, passing.start_up),
        *(passing.kernel_benchmark, passing.copy_benchmark, passing.host_only),
    ),
    "stall": (looping.stalled,),
    "blocked host": (
        *(blocking.long_copy_call, blocking.slow_launch, blocking.late_hand_over),
        *(blocking.autograd_thread, blocking.lock_held),
    ),
    "several devices": (several.late_start, several.straggler, several.slow_network, several.idle_device),
    "chunks": (bursts.chunked_requests,),
    "odd markers": (looping.one_marker, looping.half_marked, looping.micro_batches),
    "plain loop": (looping.plain, looping.plain, looping.copies_only),
    "waits for results": (looping.waiting, looping.graph_decode),
    "frameworks": (looping.frameworks,),
    "layers alone": (passing.layered_pass,),
}
ROTATION = (  # about half of what people record has no loop
    *("without a loop", "plain loop", "blocked host", "without a loop", "stall", "several devices"),
    *("without a loop", "frameworks", "chunks", "layers alone", "without a loop", "odd markers"),
    *("waits for results", "without a loop", "frameworks", "blocked host", "plain loop", "several devices"),
    *("without a loop", "layers alone", "frameworks"),
)
HARMLESS = ("idle device",)  # where the difference between twins is no loss
ATTEMPTS = 60


@dataclass(frozen=True)
class Drawn:
    """A recording and the truth about it; `disturbed` is its twin's difference."""

    number: int
    family: str
    disturbed: bool
    sketch: Sketch
    truth: Truth


def family_of(number: int) -> str:
    """Return the family of recording `number` of every block."""
    return ROTATION[number // 2 % len(ROTATION)]


def draw(seed: str, number: int) -> Drawn:
    """Return recording `number` of a block: the healthy twins are even, the disturbed ones odd."""
    return draw_pair(seed, number // 2)[number % 2]


@lru_cache(maxsize=1)  # twins are requested one after the other
def draw_pair(seed: str, pair: int) -> tuple[Drawn, ...]:
    """Return twins; a pair with one in the grey zone is drawn again."""
    for attempt in range(ATTEMPTS):
        twins = tuple(draw_once(seed, pair, attempt, disturbed) for disturbed in (False, True))
        if all(is_clear(twin) for twin in twins):
            return twins
    raise RuntimeError(f"pair {pair} of block {seed} stays in the grey zone after {ATTEMPTS} attempts")


def is_clear(drawn: Drawn) -> bool:
    """Return whether there is a loss that is worth a word where one was planted, and no doubtful one."""
    view = drawn.truth.views[0]
    planted = drawn.disturbed and drawn.sketch.variant not in HARMLESS
    return view.clear and (view.largest != NOTHING or not planted)


def draw_once(seed: str, pair: int, attempt: int, disturbed: bool) -> Drawn:
    """Return one of a pair, whose largest loss may be in the grey zone."""
    turn, place = divmod(pair, len(ROTATION))
    family = ROTATION[place]
    before = turn * ROTATION.count(family) + ROTATION[:place].count(family)
    variants = FAMILIES[family]
    sketch = variants[before % len(variants)](Random(f"{seed} {pair} {attempt}"), disturbed)
    return Drawn(2 * pair + disturbed, family, disturbed, sketch, find_truth(sketch))


def record(drawn: Drawn) -> tuple[Trace, ...]:
    """Return what was recorded: a trace, or one for every rank."""
    return write(drawn.sketch, play(drawn.sketch.programs))
