"""The drawing of recordings from a seed: pairs of twins, of which one is healthy and the other one is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from benchmarks.unseen import blocking, bursts, looping, passing, several
from benchmarks.unseen.playing import play
from benchmarks.unseen.recording import write
from benchmarks.unseen.sketch import Sketch
from benchmarks.unseen.truth import Truth, find_truth
from deepprof.collectors.trace import Trace

__all__ = ["FAMILIES", "Drawn", "draw", "record"]

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
    "waits for results": (looping.waiting,),
    "frameworks": (looping.frameworks,),
    "layers alone": (passing.layered_pass,),
}
ATTEMPTS = 60


@dataclass(frozen=True)
class Drawn:
    """A recording and the truth about it; `disturbed` is its twin's difference."""

    number: int
    family: str
    disturbed: bool
    sketch: Sketch
    truth: Truth


def draw(seed: str, number: int) -> Drawn:
    """Return recording `number` of a block; a pair with one in the grey zone is drawn again."""
    for attempt in range(ATTEMPTS):
        twins = [draw_once(seed, number // 2, attempt, disturbed) for disturbed in (False, True)]
        if all(twin.truth.views[0].clear for twin in twins):
            return twins[number % 2]
    raise RuntimeError(f"recording {number} of block {seed} stays in the grey zone after {ATTEMPTS} attempts")


def draw_once(seed: str, pair: int, attempt: int, disturbed: bool) -> Drawn:
    """Return one of a pair, whose largest loss may be in the grey zone."""
    family = list(FAMILIES)[pair % len(FAMILIES)]
    variants = FAMILIES[family]
    sketch = variants[pair // len(FAMILIES) % len(variants)](Random(f"{seed} {pair} {attempt}"), disturbed)
    return Drawn(2 * pair + disturbed, family, disturbed, sketch, find_truth(sketch))


def record(drawn: Drawn) -> tuple[Trace, ...]:
    """Return what was recorded: a trace, or one for each rank."""
    return write(drawn.sketch, play(drawn.sketch.programs))
