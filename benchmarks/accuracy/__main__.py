"""`python -m benchmarks.accuracy`: the tables of `docs/generated/accuracy.md`, some of them, or case by case."""

from __future__ import annotations

import argparse
import sys
import time

from benchmarks.accuracy.looks import Case, Outcome, look_at
from benchmarks.accuracy.sections import SECTIONS, cases, tables
from benchmarks.accuracy.workers import each

EXPLAINED = """\
# How well iterations are found

Written by `make accuracy`; a test fails when a row gets worse. Times are no part of it, they are printed on the
screen. The miner gets symbols, one per kernel, at first alone and then with the idle gaps before them. For made-up
sequences the truth is known:

- `period` is right within 1 % of the true one (for an iteration that grows: between its lengths), `count` when the
  number of whole iterations differs by one or 2 % at most;
- `F1` is that of boundaries within ±2 kernels at the best constant rotation, `phase` that without a rotation, within
  1 % of the period;
- a loop is *right* with a right period and F1 ≥ 0.9, *fully right* with phase ≥ 0.9 as well.

With gradient accumulation the iteration is the optimizer's; with a critic and a generator it is the whole cycle. A job
of two loops must have both found: its figures are the mean of its loops, each with the found one that fits it best.
Seeds were fixed before the miner was tuned, and none was left out.
"""


def main() -> None:
    """Print the whole document or what was requested."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__)
    parser.add_argument("--section", action="append", choices=SECTIONS, help="this one only; may be repeated")
    parser.add_argument("--verbose", action="store_true", help="one line per case and look, before the tables")
    parser.add_argument("--only", default="", help="with cases whose row or number contains this")
    parser.add_argument("--workers", type=int, default=0, help="processes; as many as there are cores by default")
    given = parser.parse_args()
    shown = [] if given.section else [EXPLAINED]
    for section in given.section or SECTIONS:
        shown += run(section, given.verbose, given.only, given.workers)
    sys.stdout.write("\n".join(shown))


def run(section: str, verbose: bool, only: str, workers: int) -> list[str]:
    """Return a section's tables, the time it needed told on the side."""
    begin = time.perf_counter()
    chosen = [case for case in cases(section) if only in f"{case.row} {case.number}"]
    outcomes = [outcome for some in each(look_at, chosen, workers) for outcome in some]
    if verbose and section != "sealed":
        show(chosen, outcomes)
    made = [table.markdown() for table in tables(section, outcomes, workers=workers)]
    print(spent(section, chosen, outcomes, time.perf_counter() - begin), file=sys.stderr)
    return made


def show(chosen: list[Case], outcomes: list[Outcome]) -> None:
    """Print a line per look, below each case's own where there is more to state of it."""
    for case in chosen:
        print(f"{case.section}/{case.row}/{case.number}: {case.about}")
        print(*(told(o) for o in outcomes if (o.row, o.number) == (case.row, case.number)), sep="\n")


def told(outcome: Outcome) -> str:
    """Return one look at one case as a line."""
    s = outcome.score
    mark = "FULL" if s.fully == 1 else "right" if s.right == 1 else "-"
    name = f"{outcome.section}/{outcome.row}/{outcome.number} {outcome.look}"
    periods = f"period {joined(outcome.periods)} of {joined(outcome.wanted)}"
    scores = f"F1 {s.rotated:.3f} phase {s.phase:.3f} count {s.count:.2f} confidence {outcome.confidence:.2f}"
    took = f"{outcome.ns / 1e6:.0f} ms"
    return f"{mark:5} {name:50} n {outcome.symbols:6} {periods:22} {scores} {took} {outcome.reason}".rstrip()


def joined(periods: tuple[int, ...]) -> str:
    """Return the periods of several loops as one word."""
    return "+".join(map(str, periods)) or "-"


def spent(section: str, chosen: list[Case], outcomes: list[Outcome], seconds: float) -> str:
    """Return what a section took."""
    ns, symbols = sum(o.ns for o in outcomes), sum(o.symbols for o in outcomes)
    mined = f"mining {ns / 1e6:.0f} ms, {ns / symbols:.0f} ns per symbol, " if symbols else ""
    return f"{section}: {len(chosen)} cases, {len(outcomes)} looks, {mined}{seconds:.1f} s in all"


if __name__ == "__main__":
    main()
