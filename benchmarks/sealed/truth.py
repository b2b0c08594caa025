"""What a job deserves to be told, measured on its schedule with and without each mistake, never on an analysis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from benchmarks.cases.case import HEALTHY
from benchmarks.cases.played import Job, run

__all__ = ["LIMITS", "Truth", "find_truth"]

LIMITS = {  # shares of an iteration that are worth a word, as docs/diagnosis.md has them
    "input-bound": 0.08,
    "host-bound": 0.15,
    "copy-bound": 0.1,
    "device-copies": 0.1,
    "sync-bound": 0.1,
    "allocator-bound": 0.05,
    "communication-bound": 0.15,
    "launch-bound": 0.15,
    "slow-iterations": 0.1,
    "graph-growth": 0.4,  # of what the capture ends with: the interval must be a fifth on average
    "drift": 0.1,
    "wrong-precision": 0.05,
    "unfused-attention": 0.05,
    "elementwise-chains": 0.15,
    "layout-conversions": 0.08,
    "repeated-casts": 0.1,
    "unfused-optimizer": 0.15,
    "padding-waste": 0.1,
    "embedding-bound": 0.15,
    "normalization-bound": 0.08,
    "unfused-dropout": 0.1,
    "small-grids": 0.15,
    "double-precision": 0.08,
    "older-attention": 0.15,
    "fallback-kernels": 0.08,
    "unfused-loss": 0.15,
}
ABOVE, BELOW = 1.7, 0.6  # times the limit: between them it is a matter of taste
AS_GOOD = 1.5  # times as large: two mistakes of about one size
LASTS = {"growth": 2, "slower": 2}  # times the mean: what the capture ends with, and every later iteration has
APART = 0.5  # of what all save together: where the single ones save less, one mistake hides the other
WARMUP = 3  # iterations that are not measured
NEAR = {  # what is as true of a mistake, whatever was recorded
    "often": ("slow-iterations",),
    "rarely": ("input-bound",),
    "slower": ("slow-iterations",),
}
BLIND = {  # what can be stated of it where launches were not recorded; the first is the best answer
    "data": ("host-bound", "input-bound"),
    "logs": ("host-bound",),
    "often": ("host-bound", "input-bound", "slow-iterations"),
    "rarely": ("slow-iterations", "input-bound", "host-bound"),
    "reads": (HEALTHY, "sync-bound", "host-bound"),
    "memory": (HEALTHY, "allocator-bound", "host-bound"),
    "launches": (HEALTHY, "launch-bound", "host-bound"),
    "growth": ("graph-growth", "host-bound", "drift"),
}
UNNAMED = {  # where nothing states that data is loaded
    "data": ("host-bound",),
    "often": ("host-bound", "slow-iterations"),
    "rarely": ("slow-iterations", "host-bound"),
}


@dataclass(frozen=True)
class Truth:
    """The best headline, those that are as true, and whether the loss is out of the grey zone and hides no other.

    `shares` is what the iteration would save without each mistake; `starts` are the true iterations' first kernels in
    nanoseconds since the capture's clock began, with the one after the last, `kernels` how many the usual one has.
    """

    label: str
    also: tuple[str, ...]
    clear: bool
    shares: Mapping[str, float]
    starts: tuple[int, ...]
    kernels: int


def find_truth(job: Job, without: Mapping[str, Job], bare: Job, rules: Mapping[str, str], missing: str) -> Truth:
    """Return the truth about a job; `without` has it without one of its mistakes each, `bare` without all of them."""
    starts, lengths = play_starts(job)
    whole = mean_ns(starts)
    shares = {name: 1 - mean_ns(play_starts(other)[0]) / whole for name, other in without.items()}
    ahead = {name: LASTS.get(name, 1) * share for name, share in shares.items()}
    hidden = len(shares) > 1 and sum(shares.values()) < APART * (1 - mean_ns(play_starts(bare)[0]) / whole)
    label, also, clear = judge_shares(ahead, rules, missing)
    return Truth(label, also, clear and not hidden, shares, tuple(starts), sorted(lengths)[len(lengths) // 2])


def judge_shares(
    shares: Mapping[str, float], rules: Mapping[str, str], missing: str
) -> tuple[str, tuple[str, ...], bool]:
    """Return the best headline, as true ones, and whether the largest share is well above or all well below limits."""
    sizes = {name: share / LIMITS[rules[name]] for name, share in shares.items()}
    if all(size <= BELOW for size in sizes.values()):
        return HEALTHY, (), True
    largest = max(shares, key=lambda name: shares[name])
    close = [name for name in shares if AS_GOOD * shares[name] >= shares[largest]]
    told = [answer for name in (largest, *close) for answer in answers(name, rules[name], missing)]
    # Where the largest cannot be seen, the next one that can is the headline.
    hidden = told[0] == HEALTHY
    told += [a for n in shares if hidden and n != largest for a in answers(n, rules[n], missing)]
    clear = sizes[largest] >= ABOVE and all(sizes[name] >= ABOVE for name in close)
    label, *also = dict.fromkeys(told)
    return label, tuple(also), clear


def answers(name: str, rule: str, missing: str) -> tuple[str, ...]:
    """Return what may be stated of a mistake as it was recorded, the best first."""
    told = (rule, *NEAR.get(name, ()))
    if missing in ("launch records", "the host"):
        return BLIND.get(name, told)
    unnamed = missing == "ranges" and name in UNNAMED
    return (*UNNAMED[name], *told) if unnamed else told


def play_starts(job: Job) -> tuple[list[int], list[int]]:
    """Return when each iteration's first kernel begins, the unfinished last one's included, and their kernels."""
    machine, firsts = run(job)
    return [machine.kernels[first][0] for first in firsts], [after - first for first, after in pairwise(firsts)]


def mean_ns(starts: list[int]) -> float:
    """Return the mean time from start to start after the warm-up."""
    return (starts[-1] - starts[WARMUP]) / (len(starts) - 1 - WARMUP)
